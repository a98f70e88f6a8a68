// SPDX-License-Identifier: GPL-2.0-or-later
/* Processes, pipes, signals between them, threads, and the state of the FPU across all of that. */

#include "stress.h"

static const char *forks(void)
{
	for (int i = 0; i < 100; i++) {
		long child = SYS0(fork);
		if (child == 0)
			quit(i);
		EXPECT("the status of a child", wait_for(child), EXITED(i));
	}
	return 0;
}

static const char *forks_at_once(void)
{
	long children[100];
	for (int i = 0; i < 100; i++) {
		children[i] = SYS0(fork);
		if (children[i] == 0) {
			SYS0(sched_yield);
			quit(i ^ 0x55);
		}
	}
	for (int i = 0; i < 100; i++)
		EXPECT("the status of a child", wait_for(children[i]), EXITED(i ^ 0x55));
	EXPECT("waiting for one more", wait_for(-1), -ECHILD);
	return 0;
}

/* A chain of eight processes: each adds one to every number that comes and passes it on. */
static const char *pipes(void)
{
	int in, ends[2];
	EXPECT("pipe", SYS2(pipe2, ends, 0), 0);
	int first = ends[1];
	in = ends[0];
	for (int stage = 0; stage < 8; stage++) {
		EXPECT("pipe", SYS2(pipe2, ends, 0), 0);
		if (SYS0(fork) == 0) {
			uint32_t number;
			SYS1(close, first);
			SYS1(close, ends[0]);
			while (SYS3(read, in, &number, sizeof number) == sizeof number) {
				number++;
				SYS3(write, ends[1], &number, sizeof number);
			}
			quit(0);
		}
		SYS1(close, in);
		SYS1(close, ends[1]);
		in = ends[0];
	}
	for (uint32_t i = 0; i < 500; i++) {
		uint32_t number = i;
		EXPECT("writing", SYS3(write, first, &number, sizeof number), sizeof number);
	}
	SYS1(close, first);
	for (uint32_t i = 0; i < 500; i++) {
		uint32_t number = 0;
		EXPECT("reading", SYS3(read, in, &number, sizeof number), sizeof number);
		EXPECT("a number", number, i + 8);
	}
	uint32_t number;
	EXPECT("reading at the end", SYS3(read, in, &number, sizeof number), 0);
	for (int stage = 0; stage < 8; stage++)
		EXPECT("the status of a child", wait_for(-1), EXITED(0));
	return 0;
}

static volatile int arrived[65], arrivals;

static void note(int signal, siginfo_t *info, void *context)
{
	(void)info, (void)context;
	arrived[signal]++;
	arrivals++;
}

/* Masked, pending, let in; queued real-time signals come in order of their numbers, each as often as sent. */
static const char *signals(void)
{
	long self = SYS0(getpid);
	uint64_t none = 0, all = ~0ull, pending = 0;
	for (int i = SIGRTMIN; i < 40; i++)
		EXPECT("sigaction", handle(i, note, 0), 0);
	EXPECT("sigaction", handle(SIGUSR1, note, 0), 0);
	EXPECT("sigprocmask", SYS4(rt_sigprocmask, SIG_SETMASK, &all, 0, 8), 0);
	for (int i = 39; i >= SIGRTMIN; i--)
		for (int n = 0; n < 3; n++)
			EXPECT("kill", SYS2(kill, self, i), 0);
	EXPECT("kill", SYS2(kill, self, SIGUSR1), 0);
	EXPECT("kill", SYS2(kill, self, SIGUSR1), 0);
	EXPECT("sigpending", SYS2(rt_sigpending, &pending, 8), 0);
	EXPECT("SIGUSR1 is pending", pending >> (SIGUSR1 - 1) & 1, 1);
	EXPECT("before they are let in", arrivals, 0);
	EXPECT("sigprocmask", SYS4(rt_sigprocmask, SIG_SETMASK, &none, 0, 8), 0);
	EXPECT("SIGUSR1, which is not queued", arrived[SIGUSR1], 1);
	for (int i = SIGRTMIN; i < 40; i++)
		EXPECT("a queued signal", arrived[i], 3);
	for (int i = 0; i < 1000; i++)
		EXPECT("kill", SYS2(kill, self, SIGUSR1), 0);
	EXPECT("SIGUSR1", arrived[SIGUSR1], 1001);
	return 0;
}

/* The timer interrupts a loop that makes no system call. */
static const char *timer(void)
{
	struct repeated every = { { 0, 5000 }, { 0, 5000 } };
	EXPECT("sigaction", handle(SIGALRM, note, 0), 0);
	EXPECT("setitimer", SYS3(setitimer, 0, &every, 0), 0);
	while (arrived[SIGALRM] < 20)
		;
	every = (struct repeated){ 0 };
	EXPECT("setitimer", SYS3(setitimer, 0, &every, 0), 0);
	return 0;
}

static const char *clock(void)
{
	struct span before, after, nap = { 0, 30000000 };
	EXPECT("clock_gettime", SYS2(clock_gettime, 1, &before), 0);
	EXPECT("nanosleep", SYS2(nanosleep, &nap, 0), 0);
	EXPECT("clock_gettime", SYS2(clock_gettime, 1, &after), 0);
	long passed = (after.seconds - before.seconds) * 1000000000 + after.fraction - before.fraction;
	return passed >= nap.fraction ? 0 : differs("30 ms took %d ns", passed);
}

#define THREADS 6
#define ROUNDS 400

static int lock, shared_count, running[THREADS];
static long own[THREADS];

static long futex(int *word, int operation, int value)
{
	return syscall7(__NR_futex, (long)word, operation, value, 0, 0, 0);
}

/* A mutex of three states: 0 free, 1 taken, 2 taken and waited for. */
static void acquire(void)
{
	int seen = __sync_val_compare_and_swap(&lock, 0, 1);
	while (seen != 0) {
		if (seen == 2 || __sync_val_compare_and_swap(&lock, 1, 2) != 0)
			futex(&lock, FUTEX_WAIT, 2);
		seen = __sync_val_compare_and_swap(&lock, 0, 2);
	}
}

static void release(void)
{
	if (__sync_fetch_and_sub(&lock, 1) != 1) {
		__atomic_store_n(&lock, 0, __ATOMIC_SEQ_CST);
		futex(&lock, FUTEX_WAKE, 1);
	}
}

/* Where the thread's own data lies, as the segment register has it. */
static long thread_pointer(void)
{
	long at;
#ifdef __x86_64__
	__asm__ volatile("mov %%fs:0, %0" : "=r"(at));
#else
	__asm__ volatile("mov %%gs:0, %0" : "=r"(at));
#endif
	return at;
}

static void work(long index)
{
#ifndef __x86_64__
	extern int tls_entry;
	__asm__ volatile("mov %w0, %%gs" : : "r"(tls_entry * 8 + 3));
#endif
	for (int i = 0; i < ROUNDS; i++) {
		acquire();
		int now = shared_count;
		if (i % 16 == 0)
			SYS0(sched_yield);
		if (thread_pointer() == (long)&own[index])
			shared_count = now + 1;
		release();
	}
}

#ifdef __x86_64__
static long tls(long *at)
{
	return (long)at;
}
#else
#include <asm/ldt.h>

int tls_entry = -1;

static long tls(long *at)
{
	static struct user_desc entries[THREADS];
	struct user_desc *entry = &entries[at - own];
	*entry = (struct user_desc){ .entry_number = tls_entry, .base_addr = (long)at, .limit = 0xfffff,
				     .seg_32bit = 1, .limit_in_pages = 1, .useable = 1 };
	if (tls_entry == -1 && SYS1(set_thread_area, entry) == 0)
		tls_entry = entry->entry_number;
	return (long)entry;
}
#endif

static const char *threads(void)
{
	const long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
			   CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
	for (long i = 0; i < THREADS; i++) {
		uint8_t *stack = pages(16 * PAGE, PROT_READ | PROT_WRITE);
		long *top = (long *)(stack + 16 * PAGE) - 4;
		top[0] = (long)work;
		top[1] = i;
		own[i] = (long)&own[i];
		if (spawn(flags, top, &running[i], tls(&own[i]), &running[i]) < 0)
			return differs("thread %d cannot be made", i);
	}
	for (int i = 0; i < THREADS; i++)
		for (int now; (now = __atomic_load_n(&running[i], __ATOMIC_SEQ_CST)) != 0;)
			futex(&running[i], FUTEX_WAIT, now);
	EXPECT("what all counted", shared_count, THREADS * ROUNDS);
	return 0;
}

/* Three processes keep values in FPU and SSE registers while the others run and signals come. */
static int keep_registers(uint32_t seed)
{
	static uint32_t in[4] __attribute__((aligned(16))), out[4] __attribute__((aligned(16)));
	const uint64_t x87_in = 0x4000000000000000 + seed;
	uint64_t x87_out;
	for (uint32_t i = 0; i < 4; i++)
		in[i] = seed * 0x01010101 + i;
	for (int round = 0; round < 200; round++) {
		__asm__ volatile("fldl %0\n\tmovaps %1, %%xmm5" : : "m"(x87_in), "m"(in));
		SYS0(sched_yield);
		SYS2(kill, SYS0(getpid), SIGUSR1);
		__asm__ volatile("fstpl %0\n\tmovaps %%xmm5, %1" : "=m"(x87_out), "=m"(out));
		if (x87_in != x87_out)
			return 1;
		for (int i = 0; i < 4; i++)
			if (in[i] != out[i])
				return 2;
	}
	return 0;
}

static void spoil_registers(int signal, siginfo_t *info, void *context)
{
	static const uint32_t other[4] __attribute__((aligned(16))) = { 9, 8, 7, 6 };
	note(signal, info, context);
	__asm__ volatile("fninit\n\tfldpi\n\tmovaps %0, %%xmm5" : : "m"(other));
}

static const char *floating_point(void)
{
	EXPECT("sigaction", handle(SIGUSR1, spoil_registers, 0), 0);
	for (int i = 0; i < 3; i++)
		if (SYS0(fork) == 0)
			quit(keep_registers(i + 3));
	for (int i = 0; i < 3; i++)
		EXPECT("registers changed: x87 100, SSE 200", wait_for(-1), EXITED(0));
	return 0;
}

/* The other ways into the kernel: SYSENTER from the page that the kernel gives, INT 80h from 64-bit code. */
static const char *other_entries(void)
{
	long pid = SYS0(getpid);
#ifdef __x86_64__
	long found;
	__asm__ volatile("int $0x80" : "=a"(found) : "a"(20l) : "r8", "r9", "r10", "r11", "memory");
	EXPECT("getpid by int 80h", found, pid);
#else
	extern long *auxiliary;
	for (long *at = auxiliary; at[0]; at += 2) {
		if (at[0] == 32) {
			long found;
			__asm__ volatile("call *%1" : "=a"(found) : "r"(at[1]), "0"(__NR_getpid) : "memory");
			EXPECT("getpid by the vDSO", found, pid);
			return 0;
		}
	}
	return "there is no AT_SYSINFO";
#endif
	return 0;
}

const struct check process_checks[] = {
	{ "forks", forks },
	{ "forks at once", forks_at_once },
	{ "pipes", pipes },
	{ "signals", signals },
	{ "timer", timer },
	{ "clock", clock },
	{ "threads", threads },
	{ "floating point", floating_point },
	{ "system call entries", other_entries },
	{ 0, 0 },
};
