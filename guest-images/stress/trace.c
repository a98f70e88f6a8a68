// SPDX-License-Identifier: GPL-2.0-or-later
/* What a debugger does: ptrace's steps, breakpoints in code, hardware breakpoints and watchpoints. */

#include "stress.h"
#include <linux/ptrace.h>
#include <asm/ptrace.h>
#include <sys/user.h>

#define TRAPPED STOPPED(SIGTRAP)
#define DEBUG_REGISTER(n) (offsetof(struct user, u_debugreg) + (n) * sizeof(long))

static long trace(long request, long child, long address, long data)
{
	return SYS4(ptrace, request, child, address, data);
}

/* A word of the child: the system call stores it, only the C library returns it. */
static long word(long request, long child, long address)
{
	long value = 0;
	long result = trace(request, child, address, (long)&value);
	return result < 0 ? result : value;
}

static long where(long child)
{
#ifdef __x86_64__
	return word(PTRACE_PEEKUSR, child, offsetof(struct user_regs_struct, rip));
#else
	return word(PTRACE_PEEKUSR, child, offsetof(struct user_regs_struct, eip));
#endif
}

static void go_to(long child, const char *place)
{
#ifdef __x86_64__
	trace(PTRACE_POKEUSR, child, offsetof(struct user_regs_struct, rip), (long)place);
#else
	trace(PTRACE_POKEUSR, child, offsetof(struct user_regs_struct, eip), (long)place);
#endif
}

/* A child that stops itself, then runs a function. */
static long traced_child(void (*function)(void))
{
	long child = SYS0(fork);
	if (child == 0) {
		trace(PTRACE_TRACEME, 0, 0, 0);
		SYS2(kill, SYS0(getpid), SIGSTOP);
		function();
		quit(3);
	}
	return wait_for(child) == STOPPED(SIGSTOP) ? child : -1;
}

/* From stepped_from to stepped_to: a loop, a string instruction, flags saved, a system call. */
void stepped(void);
extern const char stepped_from[], stepped_to[];
extern uint8_t stepped_buffer[];
uint8_t stepped_buffer[16];

__asm__(".text\n"
	"stepped:\n"
	"	push	%" DI "\n"
	"stepped_from:\n"
	"	mov	$3, %ecx\n"
	"1:	dec	%ecx\n"
	"	jnz	1b\n"
	"	push	%" DI "\n"
	"	pop	%" DI "\n"
	"	mov	$stepped_buffer, %edi\n"
	"	mov	$5, %ecx\n"
	"	mov	$0x5a, %al\n"
	"	rep stosb\n"
	"	mov	$" STRING(__NR_getppid) ", %eax\n"
	"	" SYSCALL "\n"
	"	pushf\n"
	"	pop	%" AX "\n"
	"	mov	%eax, stepped_buffer+8\n"
	"stepped_to:\n"
	"	pop	%" DI "\n"
	"	ret\n");

/* Steps that go on to another instruction; those that stay at the string instruction are counted apart. */
#define STEPS (1 + 6 + 2 + 3 + 1 + 1 + 1 + 3)
#define REPEATS 4

static const char *steps(void)
{
	long child = traced_child(stepped);
	EXPECT("the child stops", child > 0, 1);
	/* To the place by a breakpoint in the code, as a debugger does. */
	long code = word(PTRACE_PEEKTEXT, child, (long)stepped_from);
	EXPECT("the code", code, *(const long *)stepped_from);
	EXPECT("poke", trace(PTRACE_POKETEXT, child, (long)stepped_from, (code & ~0xffl) | 0xcc), 0);
	EXPECT("cont", trace(PTRACE_CONT, child, 0, 0), 0);
	EXPECT("at the breakpoint", wait_for(child), TRAPPED);
	EXPECT("behind the breakpoint", where(child), (long)stepped_from + 1);
	EXPECT("poke", trace(PTRACE_POKETEXT, child, (long)stepped_from, code), 0);
	go_to(child, stepped_from);
	int count = 0, repeats = 0, over_calls = 0;
	for (long at = (long)stepped_from, before; at != (long)stepped_to && count + repeats < 100;) {
		EXPECT("step", trace(PTRACE_SINGLESTEP, child, 0, 0), 0);
		EXPECT("after a step", wait_for(child), TRAPPED);
		siginfo_t info = { 0 };
		EXPECT("getsiginfo", trace(PTRACE_GETSIGINFO, child, 0, (long)&info), 0);
		if (info.si_code == TRAP_BRKPT)
			over_calls++;
		else
			EXPECT("si_code", info.si_code, TRAP_TRACE);
		before = at;
		at = where(child);
		if (at == before)
			repeats++;
		else
			count++;
	}
	EXPECT("steps", count, STEPS);
	/* A processor traps after every repetition; qemu with -icount also when it finds that none is left. */
	if (repeats != REPEATS + 1)
		EXPECT("repetitions", repeats, REPEATS);
	EXPECT("steps over a system call, which have their own si_code", over_calls, 1);
	EXPECT("the stored bytes", word(PTRACE_PEEKDATA, child, (long)stepped_buffer) & 0xffffffff, 0x5a5a5a5a);
	EXPECT("the trap flag, which pushf shows", word(PTRACE_PEEKDATA, child, (long)stepped_buffer + 8) & TF, TF);
	EXPECT("cont", trace(PTRACE_CONT, child, 0, 0), 0);
	EXPECT("the child", wait_for(child), EXITED(3));
	return 0;
}

static volatile int answer;

static void ask(void)
{
	for (int i = 0; i < 10; i++)
		answer = SYS0(getppid);
	quit(answer == 4321 ? 5 : 6);
}

/* Every system call stops twice; the tracer changes what one of them returns. */
static const char *calls(void)
{
	long child = traced_child(ask);
	EXPECT("the child stops", child > 0, 1);
	int stops = 0;
	for (;;) {
		EXPECT("syscall", trace(PTRACE_SYSCALL, child, 0, 0), 0);
		long status = wait_for(child);
		if (status == EXITED(5))
			break;
		EXPECT("at a system call", status, TRAPPED);
		stops++;
#ifdef __x86_64__
		if (stops == 20)
			trace(PTRACE_POKEUSR, child, offsetof(struct user_regs_struct, rax), 4321);
#else
		if (stops == 20)
			trace(PTRACE_POKEUSR, child, offsetof(struct user_regs_struct, eax), 4321);
#endif
	}
	EXPECT("stops", stops, 21);
	return 0;
}

static volatile int watched[4];
void watched_function(void);

/* A function whose first instruction has a label, and stores to watched memory by known instructions. */
__asm__(".text\n"
	"watched_function:\n"
	"	nop\n"
	"	ret\n");

static void act(void)
{
	for (int i = 0; i < 7; i++)
		watched_function();
	for (int i = 0; i < 5; i++) {
		watched[0] = 9;
		watched[1] = i;
		watched[2] = watched[1] + 1;
	}
}

#define EXECUTE 0
#define WRITE 1
#define ACCESS 3
#define LENGTH_4 3

/* Arms debug register `n` in the child; continues it and counts how often it stops for that one. */
static const char *count_hits(int n, const volatile void *at, int kind, int length, int right)
{
	long child = traced_child(act);
	long control = 1l << (2 * n) | (long)(kind | length << 2) << (16 + 4 * n);
	EXPECT("the child stops", child > 0, 1);
	EXPECT("the address", trace(PTRACE_POKEUSR, child, DEBUG_REGISTER(n), (long)at), 0);
	EXPECT("DR7", trace(PTRACE_POKEUSR, child, DEBUG_REGISTER(7), control), 0);
	int hits = 0;
	for (;;) {
		EXPECT("cont", trace(PTRACE_CONT, child, 0, 0), 0);
		long status = wait_for(child);
		if (status == EXITED(3))
			break;
		EXPECT("at a hit", status, TRAPPED);
		siginfo_t info = { 0 };
		EXPECT("getsiginfo", trace(PTRACE_GETSIGINFO, child, 0, (long)&info), 0);
		EXPECT("si_code", info.si_code, TRAP_HWBKPT);
		EXPECT("DR6", word(PTRACE_PEEKUSR, child, DEBUG_REGISTER(6)) & 15, 1 << n);
		if (kind == EXECUTE)
			EXPECT("where", where(child), (long)at);
		if (++hits > 100)
			break;
	}
	EXPECT("hits", hits, right);
	return 0;
}

static const char *breakpoints(void)
{
	for (int n = 0; n < 4; n++) {
		const char *wrong = count_hits(n, (const void *)watched_function, EXECUTE, 0, 7);
		if (wrong)
			return wrong;
	}
	return 0;
}

static const char *watchpoints(void)
{
	const char *wrong;
	if ((wrong = count_hits(0, &watched[0], WRITE, LENGTH_4, 5)) ||
	    (wrong = count_hits(1, &watched[1], WRITE, LENGTH_4, 5)) ||
	    (wrong = count_hits(2, &watched[1], ACCESS, LENGTH_4, 10)) ||
	    (wrong = count_hits(3, (const volatile uint8_t *)&watched[2] + 2, WRITE, 0, 5)) ||
	    (wrong = count_hits(0, &watched[3], ACCESS, LENGTH_4, 0)))
		return wrong;
	return 0;
}

/* A child is stopped again and again in the middle of a loop, by a signal, and continues unaffected. */
static void loop(void)
{
	volatile unsigned sum = 0;
	for (unsigned i = 0; i < 200000; i++)
		sum += i;
	quit(sum == 2820030816u ? 7 : 8);
}

static const char *stops(void)
{
	long child = traced_child(loop);
	EXPECT("the child stops", child > 0, 1);
	EXPECT("cont", trace(PTRACE_CONT, child, 0, 0), 0);
	for (int i = 0; i < 20; i++) {
		SYS2(kill, child, SIGUSR1);
		long status = wait_for(child);
		if (status == EXITED(7))
			return 0;
		EXPECT("stopped", status, STOPPED(SIGUSR1));
		EXPECT("cont", trace(PTRACE_CONT, child, 0, 0), 0);
	}
	EXPECT("the child", wait_for(child), EXITED(7));
	return 0;
}

const struct check trace_checks[] = {
	{ "ptrace steps", steps },
	{ "ptrace system calls", calls },
	{ "ptrace stops", stops },
	{ "hardware breakpoints", breakpoints },
	{ "hardware watchpoints", watchpoints },
	{ 0, 0 },
};
