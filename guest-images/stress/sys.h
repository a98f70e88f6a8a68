/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The system calls that the checks make, without a C library: each returns what the kernel returns, an error as its
 * negative number. */
#ifndef SYS_H
#define SYS_H

#include <linux/mman.h>
#include <asm/siginfo.h>
#include <asm/signal.h>
#include <asm/sigcontext.h>
#include <asm/ucontext.h>
#include <asm/unistd.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <linux/wait.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE 4096

long syscall7(long number, long a, long b, long c, long d, long e, long f);

#define SYS0(n) syscall7(__NR_##n, 0, 0, 0, 0, 0, 0)
#define SYS1(n, a) syscall7(__NR_##n, (long)(a), 0, 0, 0, 0, 0)
#define SYS2(n, a, b) syscall7(__NR_##n, (long)(a), (long)(b), 0, 0, 0, 0)
#define SYS3(n, a, b, c) syscall7(__NR_##n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define SYS4(n, a, b, c, d) syscall7(__NR_##n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

/* What `old_timespec` and `old_timeval` are at either width. */
struct span {
	long seconds, fraction;
};

struct repeated {
	struct span interval, value;
};

/* What the system call rt_sigaction takes, which the headers for programs leave to the C library. */
struct action {
	void (*handler)(int, siginfo_t *, void *);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

void restorer(void);

/* clone; the child begins with the function and the argument that lie on its stack, and ends as a thread. */
long spawn(long flags, void *stack, int *parent_tid, long tls, int *child_tid);

static inline void quit(int status)
{
	SYS1(exit_group, status);
	__builtin_unreachable();
}

static inline void *map(void *at, size_t size, int protection, int flags, int file)
{
#ifdef __x86_64__
	return (void *)syscall7(__NR_mmap, (long)at, size, protection, flags, file, 0);
#else
	return (void *)syscall7(__NR_mmap2, (long)at, size, protection, flags, file, 0);
#endif
}

static inline void *pages(size_t size, int protection)
{
	return map(0, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static inline int failed(const void *mapping)
{
	return (unsigned long)mapping > -4096ul;
}

static inline long write_at(int file, const void *bytes, size_t size, unsigned long at)
{
#ifdef __x86_64__
	return SYS4(pwrite64, file, bytes, size, at);
#else
	return syscall7(__NR_pwrite64, file, (long)bytes, size, at, 0, 0);
#endif
}

/* The status of a child that has ended or stopped, or an error. */
static inline long wait_for(long child)
{
	int status = 0;
	long result = SYS4(wait4, child, &status, __WALL, 0);
	return result < 0 ? result : status;
}

#define EXITED(code) ((code) << 8)
#define STOPPED(signal) ((signal) << 8 | 0x7f)

static inline long handle(int signal, void (*handler)(int, siginfo_t *, void *), unsigned long flags)
{
	struct action action = { handler, flags | SA_SIGINFO | SA_RESTORER, restorer, 0 };
	return SYS4(rt_sigaction, signal, &action, 0, 8);
}

/* The registers in a signal's frame; of these two the kernel's headers have a name for each width. */
#define FRAME(context) (&((struct ucontext *)(context))->uc_mcontext)
#ifdef __x86_64__
#define FRAME_IP rip
#define FRAME_SP rsp
#else
#define FRAME_IP eip
#define FRAME_SP esp
#endif

#endif
