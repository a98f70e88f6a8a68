/* SPDX-License-Identifier: GPL-2.0-or-later
 * Everything the kernel's files know of one another. */
#ifndef KERNEL_H
#define KERNEL_H

#include "arch.h"
#include "format.h"
#include "sdt.h"
#include "trapos.h"

/* A function that probes are put on: always called, never merged into its caller or cloned. */
#define PROBE_POINT __attribute__((noinline, noclone))

struct task_struct {
	u32 state;
	u32 pid;
	u32 uid;
	char comm[COMM_SIZE];
	struct task_struct *next;
	struct task_struct *parent;
	word space;        /* physical address of the page directory */
	word kernel_stack; /* its highest address */
	word saved_sp;     /* where switch_to left off */
	u32 wake_at;
	int exit_status;
	u32 syscalls, yields, page_faults; /* what it did */
};

/* One loadable part of the program, as its ELF file says. */
struct segment {
	word start, end; /* virtual */
	word file_end;   /* from here on zeros */
	const u8 *file;  /* the byte for `start` */
	int writable, executable;
};

/* What the kernel did; the probes' own counts can be compared with these. */
struct counters {
	u32 forks, kmallocs, kfrees, page_faults, protections, breakpoints, invalid_opcodes;
	u32 swap_outs, pages_out, pages_in;
	u32 file_writes, vortex_opens, vortex_xmits, vortex_closes;
	u32 pages_taken, pages_given; /* each changed nr_free_pages once */
	u32 syscalls, yields, switches;
	u32 sdt[6];
};

extern struct task_struct *current_task;
extern struct task_struct *task_list;
extern u32 jiffies;
extern u32 nr_free_pages;
extern struct counters counters;

static inline void *virt(word physical)
{
	return (void *)(physical + KERNEL_BASE);
}

/* printk.c */
void console_write(const char *text, unsigned n);
void printk(const char *fmt, ...);
void panic(const char *why) __attribute__((noreturn));
void halt(void) __attribute__((noreturn));

/* memory.c */
void memory_init(word first_free, word end);
word get_free_page(void); /* zeroed; 0 if no page is free */
void free_page(word page);
void *kmalloc(word size);
int kfree(void *block);

/* vm.c */
int program_load(const u8 *file, word size, word *entry, word *base, word *end);
int copy_space(word to, word from);
void free_space(word space);
void do_page_fault(struct regs *regs, word error);

/* swap.c. An entry that is not 0 and not present names a page on the swap disk. */
#define PTE_SWAPPED 0x200
#define PTE_KEPT ((pte_t)(PTE_USER | PTE_WRITE | PTE_NX)) /* flags that a page keeps wherever it is */
u32 swap_out(struct task_struct *task, u32 pages);
int swap_in(pte_t *pte);
const void *swap_page(pte_t entry);
void swap_free(pte_t entry);

/* ext2.c */
long file_write(const char *buffer, u32 count);
u32 file_sum(void);

/* net.c */
int net_open(void);
int net_send(const void *data, u32 bytes);
int net_close(void);

/* task.c */
int start_program(word entry);
int do_fork(struct regs *regs);
int do_wait(u32 pid);
void do_exit(int status) __attribute__((noreturn));
void schedule(void);
void do_timer(void);
void do_yield(void);
void do_sleep(u32 ticks);
int tasks_alive(void);
void reap_orphans(void);
extern int need_resched;

/* trap.c */
void irq_init(void);
void do_general_protection(struct regs *regs, word error);

#endif
