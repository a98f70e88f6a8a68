/* SPDX-License-Identifier: GPL-2.0-or-later
 * Traps and interrupts, and the system calls. */
#include "kernel.h"
#include "syscall.h"

#define PIC1 0x20
#define PIC2 0xa0
#define PIT 0x40
#define PIT_HZ 1193182
#define HZ 10000

struct counters counters;

/* Timer only, as vector 0x20, at HZ. */
void irq_init(void)
{
	static const u8 setup[][2] = {
		{ PIC1, 0x11 }, { PIC2, 0x11 },         /* edge triggered, cascaded, ICW4 follows */
		{ PIC1 + 1, VECTOR_TIMER }, { PIC2 + 1, VECTOR_TIMER + 8 },
		{ PIC1 + 1, 4 }, { PIC2 + 1, 2 },       /* the second hangs on line 2 */
		{ PIC1 + 1, 1 }, { PIC2 + 1, 1 },       /* 8086 mode */
		{ PIC1 + 1, 0xfe }, { PIC2 + 1, 0xff }, /* masks */
		{ PIT + 3, 0x34 },                      /* counter 0, both bytes, mode 2 */
		{ PIT, (PIT_HZ / HZ) & 0xff }, { PIT, (PIT_HZ / HZ) >> 8 },
	};

	for (u32 i = 0; i < sizeof(setup) / sizeof(setup[0]); i++)
		outb(setup[i][0], setup[i][1]);
}

/* cli, sti, hlt, in al,dx, out dx,al: one byte each. */
static int privileged(u8 opcode)
{
	return opcode == 0xfa || opcode == 0xfb || opcode == 0xf4 || opcode == 0xec || opcode == 0xee;
}

/* A privileged instruction of ring 3 is reported and skipped; any other cause ends the task. */
PROBE_POINT void do_general_protection(struct regs *regs, word error)
{
	u8 opcode;

	counters.protections++;
	if (!FROM_USER(regs))
		panic("general protection in the kernel");
	opcode = *(const u8 *)regs->ip;
	printk("general protection: pid %u ip %x error %x opcode %b\n", current_task->pid, regs->ip,
	       error, opcode);
	if (error || !privileged(opcode))
		do_exit(139);
	regs->ip++;
}

PROBE_POINT void do_int3(struct regs *regs)
{
	counters.breakpoints++;
	printk("int3: pid %u ip %x\n", current_task->pid, regs->ip);
}

/* #UD. A `lock nop` of the program's own is reported and skipped; any other cause ends the task. */
PROBE_POINT void do_invalid_op(struct regs *regs)
{
	const u8 *code = (const u8 *)regs->ip;

	counters.invalid_opcodes++;
	if (!FROM_USER(regs))
		panic("invalid opcode in the kernel");
	printk("invalid opcode: pid %u ip %x opcode %b %b\n", current_task->pid, regs->ip, code[0],
	       code[1]);
	if (code[0] != 0xf0 || code[1] != 0x90)
		do_exit(132);
	regs->ip += 2;
}

/* Whether `bytes` at `address` are all the user's, mapped or not. */
static int user_range(word address, word bytes)
{
	return address < USER_TOP && bytes <= USER_TOP - address;
}

static void set_name(const char *name, word bytes)
{
	if (bytes >= COMM_SIZE)
		bytes = COMM_SIZE - 1;
	memset(current_task->comm, 0, COMM_SIZE);
	memcpy(current_task->comm, name, bytes);
}

PROBE_POINT word do_syscall(struct regs *regs)
{
	word a = SYSCALL_ARG1(regs), b = SYSCALL_ARG2(regs);

	counters.syscalls++;
	current_task->syscalls++;
	switch (SYSCALL_NUMBER(regs)) {
	case SYS_EXIT:
		do_exit(a);
	case SYS_FORK:
		return do_fork(regs);
	case SYS_WAIT:
		return do_wait(a);
	case SYS_WRITE:
		if (!user_range(a, b))
			return -1;
		console_write((const char *)a, b);
		return b;
	case SYS_GETPID:
		return current_task->pid;
	case SYS_KMALLOC:
		return (word)kmalloc(a);
	case SYS_KFREE:
		return kfree((void *)a);
	case SYS_SLEEP:
		do_sleep(a);
		return 0;
	case SYS_SWAP:
		return swap_out(current_task, a);
	case SYS_UPTIME:
		return jiffies;
	case SYS_SETUID:
		current_task->uid = a;
		return 0;
	case SYS_YIELD:
		do_yield();
		return 0;
	case SYS_SETNAME:
		if (!user_range(a, b))
			return -1;
		set_name((const char *)a, b);
		return 0;
	case SYS_FILE_WRITE:
		return user_range(a, b) ? file_write((const char *)a, b) : -1;
	case SYS_FILE_SUM:
		return file_sum();
	case SYS_NET_OPEN:
		return net_open();
	case SYS_NET_SEND:
		return user_range(a, b) ? net_send((const void *)a, b) : -1;
	case SYS_NET_CLOSE:
		return net_close();
	}
	return -1;
}

static void unexpected(struct regs *regs)
{
	printk("trap %u: pid %u ip %x error %x\n", (u32)regs->vector, current_task->pid, regs->ip,
	       regs->error);
	if (!FROM_USER(regs))
		panic("trap in the kernel");
	do_exit(128 + regs->vector);
}

void trap_dispatch(struct regs *regs)
{
	switch (regs->vector) {
	case VECTOR_TIMER:
		outb(PIC1, 0x20);
		do_timer();
		break;
	case VECTOR_TIMER + 7: /* spurious: nothing to acknowledge */
		break;
	case VECTOR_SYSCALL:
		regs->ax = do_syscall(regs);
		break;
	case VECTOR_PF:
		do_page_fault(regs, regs->error);
		break;
	case VECTOR_GP:
		do_general_protection(regs, regs->error);
		break;
	case VECTOR_UD:
		do_invalid_op(regs);
		break;
	case VECTOR_DF:
		if (!arch_double_fault(regs))
			panic("double fault");
		break;
	case VECTOR_BP:
		do_int3(regs);
		break;
	default:
		unexpected(regs);
	}
	/* The kernel itself is never preempted. */
	if (need_resched && FROM_USER(regs))
		schedule();
}
