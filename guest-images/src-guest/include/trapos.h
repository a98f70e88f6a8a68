/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * trapos.h: what a host-side OS profile may read out of a running guest.
 *
 * The kernel exports the object symbol `trapline_os_info`, a constant of the type below. The layout
 * is the same for IA32 and x86-64: integers are little-endian, an ADDRESS field is 8 bytes and holds
 * a virtual address (upper half 0 on IA32). A pointer *in guest memory* is word_size bytes.
 *
 * struct trapline_os_info
 *   offset size
 *      0    8   magic          "TRAPOS1\0"
 *      8    4   size           bytes of this structure
 *     12    4   word_size      4 on IA32, 8 on x86-64
 *     16    4   task_pid       offset in struct task_struct, u32
 *     20    4   task_uid       offset, u32
 *     24    4   task_comm      offset, char[comm_size], NUL-terminated
 *     28    4   comm_size      16
 *     32    4   task_state     offset, u32, TASK_* below
 *     36    4   task_next      offset, pointer to the next task_struct, 0 at the end
 *     40    8   current_task   ADDRESS of the variable `current_task` (a pointer; never 0)
 *     48    8   task_list      ADDRESS of the variable `task_list` (a pointer to the first task)
 *     56    8   modules        ADDRESS of the module array
 *     64    4   module_slots   entries in the array
 *     68    4   module_stride  bytes of an entry
 *     72    8   jiffies        ADDRESS of the tick counter, u32
 *
 * struct trapline_module (an entry whose kind is 0 is free)
 *      0   24   name           NUL-terminated
 *     24    8   base           ADDRESS of its first byte
 *     32    8   size           bytes
 *     40    4   kind           1 kernel or a module of it, 2 user program
 *     44    4   reserved       0
 *
 * The kernel's own entry and `current_task` (the task of pid 0, "swapper") are initialised in the
 * image, so that both can be read before the first instruction; `appln` appears when the kernel
 * has found the module, and `3c59x`, the network driver, from its init to its exit.
 */
#ifndef TRAPOS_H
#define TRAPOS_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long word;

/* Task states. */
#define TASK_RUNNING 0
#define TASK_SLEEPING 1 /* until jiffies reaches wake_at */
#define TASK_WAITING 2  /* for a child to end */
#define TASK_ZOMBIE 3   /* ended, not yet waited for */

#define COMM_SIZE 16

/* An address in 8 bytes that a C initialiser can fill at either width. */
#if __SIZEOF_LONG__ == 4
#define ADDRESS(name) word name; u32 name##_high
#else
#define ADDRESS(name) word name
#endif

struct trapline_module {
	char name[24];
	ADDRESS(base);
	ADDRESS(size);
	u32 kind;
	u32 reserved;
};

struct trapline_os_info {
	char magic[8];
	u32 size;
	u32 word_size;
	u32 task_pid;
	u32 task_uid;
	u32 task_comm;
	u32 comm_size;
	u32 task_state;
	u32 task_next;
	ADDRESS(current_task);
	ADDRESS(task_list);
	ADDRESS(modules);
	u32 module_slots;
	u32 module_stride;
	ADDRESS(jiffies);
};

_Static_assert(sizeof(struct trapline_module) == 48, "layout is documented");
_Static_assert(sizeof(struct trapline_os_info) == 80, "layout is documented");

#endif
