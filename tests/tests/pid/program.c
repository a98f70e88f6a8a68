/* What the tests of pid probe: functions that are left in every way, with many arguments, in children, threads, after
   an exec, and in a library that is opened while the program runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone, used))

KEPT long ten(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j)
{
	__asm__ volatile("" ::: "memory");
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
}

/* Each answers its argument. */
long ret_plain(long), ret_rep(long), ret_bnd(long), ret_zero(long), ret_jump(long), ret_if(long), ret_through(long);
long call_popping(long), with_bad_bytes(long), outer(long), _alias(long), alias(long);
__asm__(".text\n"
	".macro function name\n.globl \\name\n.type \\name, @function\n\\name:\n.endm\n"
	".macro end name\n.size \\name, . - \\name\n.endm\n"
	"function ret_plain\n mov %rdi, %rax\n ret\nend ret_plain\n"
	"function ret_rep\n mov %rdi, %rax\n .byte 0xf3, 0xc3\nend ret_rep\n"
	"function ret_bnd\n mov %rdi, %rax\n .byte 0xf2, 0xc3\nend ret_bnd\n"
	"function ret_zero\n mov %rdi, %rax\n ret $0\nend ret_zero\n"
	"function ret_popping\n mov 8(%rsp), %rax\n ret $8\nend ret_popping\n"
	"function call_popping\n push %rdi\n call ret_popping\n ret\nend call_popping\n"
	"function ret_jump\n jmp ret_plain\nend ret_jump\n"
	/* Leaves by the jump, or by the return. */
	"function ret_if\n test %rdi, %rdi\n jne ret_plain\n mov %rdi, %rax\n ret\nend ret_if\n"
	/* One that stays in the function, and one that does not. */
	"function ret_through\n lea 1f(%rip), %rax\n jmp *%rax\n1: lea ret_plain(%rip), %rax\n jmp *%rax\nend ret_through\n"
	"function with_bad_bytes\n mov %rdi, %rax\n jmp 1f\n .byte 0xff, 0xff\n1: ret\nend with_bad_bytes\n"
	"function outer\n mov %rdi, %rax\n nop\nfunction inner\n nop\n ret\nend inner\nend outer\n"
	"function alias\nfunction _alias\n mov %rdi, %rax\n ret\nend _alias\nend alias\n");

KEPT long again(long n)
{
	return n < 2 ? 1 : n * again(n - 1);
}

/* x87 and SSE across every instruction. */
KEPT int floats(int n)
{
	double sum = 0;
	long double wide = 1;
	for (int i = 1; i <= n; i++) {
		sum += 1.0 / i;
		wide += wide / (i + 1);
	}
	return (int)(sum * 1000) + (int)(wide * 10);
}

KEPT int in_child(int n)
{
	return n + 1;
}

KEPT void *in_thread(void *n)
{
	return (void *)((intptr_t)n * 2);
}

KEPT int in_exec(int n)
{
	return n * 3;
}

static int status_of(pid_t child)
{
	int status = 0;
	waitpid(child, &status, 0);
	return WEXITSTATUS(status);
}

static int forked(void)
{
	pid_t child = fork();
	if (child == 0)
		_exit(in_child(6));
	return status_of(child);
}

static int executed(const char *self)
{
	pid_t child = vfork();
	if (child == 0) {
		execl(self, self, "exec", NULL);
		_exit(99);
	}
	return status_of(child);
}

static long threads(void)
{
	pthread_t thread[3];
	long sum = 0;
	for (intptr_t n = 0; n < 3; n++)
		pthread_create(&thread[n], NULL, in_thread, (void *)(n + 1));
	for (int n = 0; n < 3; n++) {
		void *result;
		pthread_join(thread[n], &result);
		sum += (intptr_t)result;
	}
	return sum;
}

static int opened(void)
{
	void *library = dlopen("/lib/libpid.so", RTLD_NOW);
	int (*shared)(int) = library ? (int (*)(int))dlsym(library, "shared") : NULL;
	return shared ? shared(41) : -1;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "exec"))
		return in_exec(5);
	printf("ten: %ld\n", ten(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
	printf("rets: %ld %ld %ld %ld %ld\n", ret_plain(1), ret_rep(2), ret_bnd(3), ret_zero(4), call_popping(5));
	printf("jumps: %ld %ld %ld %ld\n", ret_jump(6), ret_if(7), ret_if(0), ret_through(8));
	printf("others: %ld %ld %ld %ld\n", with_bad_bytes(9), outer(10), alias(11), again(5));
	printf("floats: %d\n", floats(20));
	printf("fork: %d exec: %d threads: %ld dlopen: %d\n", forked(), executed(argv[0]), threads(), opened());
	return 0;
}
