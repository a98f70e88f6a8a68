/* SPDX-License-Identifier: GPL-2.0-or-later
 * Tasks: made by fork, switched by the timer or when they wait, reaped by their parent. */
#include "driver_trace.h"
#include "kernel.h"

/* The boot's own thread of control, which idles while no other task can run. */
static struct task_struct swapper = { .comm = "swapper" };

struct task_struct *current_task = &swapper;
struct task_struct *task_list = &swapper;
u32 jiffies;
int need_resched;

static u32 last_pid;

static void add_task(struct task_struct *task)
{
	struct task_struct *last = task_list;

	while (last->next)
		last = last->next;
	task->next = 0;
	last->next = task;
}

static void remove_task(struct task_struct *task)
{
	struct task_struct *before = task_list;

	while (before->next != task)
		before = before->next;
	before->next = task->next;
}

/* A task with a kernel stack and an address space, all of it or nothing. */
static struct task_struct *new_task(void)
{
	struct task_struct *task = kmalloc(sizeof(*task));
	word stack, space;

	if (!task)
		return 0;
	memset(task, 0, sizeof(*task));
	stack = get_free_page();
	space = stack ? arch_new_space() : 0;
	if (!space) {
		if (stack)
			free_page(stack);
		kfree(task);
		return 0;
	}
	task->kernel_stack = (word)virt(stack) + PAGE_SIZE;
	task->space = space;
	task->parent = current_task;
	return task;
}

static void release_task(struct task_struct *task)
{
	if (task->space)
		free_space(task->space);
	free_page(task->kernel_stack - PAGE_SIZE - KERNEL_BASE);
	kfree(task);
}

int start_program(word entry)
{
	struct task_struct *task = new_task();
	struct regs regs;

	if (!task)
		return -1;
	task->pid = ++last_pid;
	memcpy(task->comm, "appln", 6);
	arch_user_regs(&regs, entry, USER_STACK_TOP);
	task->saved_sp = arch_first_stack(task->kernel_stack, &regs);
	add_task(task);
	printk("vmlinux: pid %u is %s, task %x\n", task->pid, task->comm, (word)task);
	return 0;
}

/* Makes a copy of the current task. The child's pid, or -1 without memory. */
PROBE_POINT int do_fork(struct regs *regs)
{
	struct task_struct *child = new_task();
	struct regs child_regs = *regs;

	counters.forks++;
	SDT_SITE(sdt_site_0, SDT_NOP5, counters.sdt[0]);
	if (!child)
		return -1;
	if (copy_space(child->space, current_task->space)) {
		release_task(child);
		return -1;
	}
	swap_out(current_task, 1);
	child->pid = ++last_pid;
	child->uid = current_task->uid;
	memcpy(child->comm, current_task->comm, COMM_SIZE);
	child_regs.ax = 0;
	child->saved_sp = arch_first_stack(child->kernel_stack, &child_regs);
	printk("fork: parent pid %u task %x, child pid %u task %x\n", current_task->pid,
	       (word)current_task, child->pid, (word)child);
	add_task(child);
	return child->pid;
}

static struct task_struct *child_of(struct task_struct *parent, u32 pid)
{
	for (struct task_struct *task = task_list; task; task = task->next)
		if (task->parent == parent && task->pid == pid)
			return task;
	return 0;
}

int do_wait(u32 pid)
{
	struct task_struct *child = child_of(current_task, pid);
	int status;

	if (!child)
		return -1;
	while (child->state != TASK_ZOMBIE) {
		current_task->state = TASK_WAITING;
		schedule();
	}
	status = child->exit_status;
	printk("wait: pid %u %s, uid %u: status %u, %u system calls, %u page faults, %u yields\n",
	       child->pid, child->comm, child->uid, (u32)status, child->syscalls,
	       child->page_faults, child->yields);
	remove_task(child);
	release_task(child);
	return status;
}

void do_exit(int status)
{
	struct task_struct *task = current_task;

	__asm__ volatile("cli" : : : "memory");
	for (struct task_struct *other = task_list; other; other = other->next)
		if (other->parent == task)
			other->parent = &swapper;
	load_cr3(arch_kernel_space);
	free_space(task->space);
	task->space = 0;
	task->exit_status = status;
	task->state = TASK_ZOMBIE;
	if (task->parent->state == TASK_WAITING)
		task->parent->state = TASK_RUNNING;
	schedule();
	panic("a dead task ran");
}

/* The next runnable task after the current one, in a circle; the swapper if no other task can run. */
static struct task_struct *pick(void)
{
	struct task_struct *task = current_task;

	do {
		task = task->next ? task->next : task_list;
		if (task != &swapper && task->state == TASK_RUNNING)
			return task;
	} while (task != current_task);
	return &swapper;
}

PROBE_POINT void schedule(void)
{
	struct task_struct *previous = current_task, *next = pick();

	need_resched = 0;
	if (next == previous)
		return;
	counters.switches++;
	current_task = next;
	if (next->space) {
		load_cr3(next->space);
		arch_set_kernel_stack(next->kernel_stack);
	}
	switch_to(&previous->saved_sp, next->saved_sp);
}

PROBE_POINT static void wake_sleepers(u32 now)
{
	for (struct task_struct *task = task_list; task; task = task->next)
		if (task->state == TASK_SLEEPING && (int)(now - task->wake_at) >= 0)
			task->state = TASK_RUNNING;
}

TRACE_HANDLE(timer_trace, "timer", 512, DTI_LEVEL_INFO, 0);

PROBE_POINT void do_timer(void)
{
	need_resched = 1;
	wake_sleepers(++jiffies);
	TRACE_DATA(timer_trace, DTI_LEVEL_INFO, ((u32[]){ jiffies, current_task->pid }), 8);
}

/* To the end of the round: the next task runs, if there is one. */
PROBE_POINT void do_yield(void)
{
	counters.yields++;
	current_task->yields++;
	SDT_SITE(sdt_site_5, SDT_NOP5_OLD, counters.sdt[5]);
	schedule();
}

void do_sleep(u32 ticks)
{
	current_task->wake_at = jiffies + ticks;
	current_task->state = TASK_SLEEPING;
	schedule();
}

/* At the end, releases the tasks for which no other task waited. */
void reap_orphans(void)
{
	while (swapper.next) {
		struct task_struct *task = swapper.next;

		remove_task(task);
		release_task(task);
	}
}

int tasks_alive(void)
{
	for (struct task_struct *task = swapper.next; task; task = task->next)
		if (task->state != TASK_ZOMBIE)
			return 1;
	return 0;
}
