/* SPDX-License-Identifier: GPL-2.0-or-later
 * A program with static probes of each kind, for Linux, which says what it sees of them. At each line with a `?` a
 * script may enable or disable some. */
#include <stdio.h>
#include <sys/wait.h>
#include <trapline/probe.h>
#include <unistd.h>

/* A note as <sys/sdt.h> leaves it: site, base, semaphore, names, arguments. */
#define NOTE(site, semaphore, name, arguments) \
	".pushsection .note.stapsdt,\"\",@note\n" \
	".balign 4\n.4byte 992f-991f, 994f-993f, 3\n" \
	"991: .asciz \"stapsdt\"\n992: .balign 4\n" \
	"993: .8byte " site ", 0, " semaphore "\n" \
	".asciz \"shop\", \"" name "\", \"" arguments "\"\n" \
	"994: .balign 4\n.popsection\n"

/* Pages that nothing else is on, so that they are the file's until they are written. 1 keeps them out of the bss. */
__attribute__((aligned(4096))) volatile unsigned short semaphores[3 * 4096] = {[0] = 1, [3 * 4096 - 1] = 1};
#define SALE semaphores[2048]
#define REFUND semaphores[2049]
__asm__(".globl sale_semaphore\n.set sale_semaphore, semaphores + 2*2048\n"
	".globl refund_semaphore\n.set refund_semaphore, semaphores + 2*2049\n");

extern void __dtrace_shop___order__placed(long number, long price) __attribute__((weak));
extern long __dtraceenabled_shop___order__placed(void) __attribute__((weak));
extern void *volatile checkout __asm__("systemtap_probe_ns__checkout") __attribute__((visibility("hidden")));

__attribute__((noinline)) void sale(long number, const char *what)
{
	if (SALE)
		__asm__ volatile("990: nop\n" NOTE("990b", "sale_semaphore", "sale", "8@%%rdi 8@%%rsi -4@$-7")
				 NOTE("990b", "sale_semaphore", "sold__again", "8@%%rdi") :: "D"(number), "S"(what));
	if (__builtin_expect(REFUND, 0))
		__asm__ volatile("990: nop\n" NOTE("990b", "refund_semaphore", "refund", "8@%%rdi") :: "D"(number));
	TRAPLINE_PROBE_ns(checkout, number * 100, what);
}

/* Bit 0: whether the is-enabled site says so. */
__attribute__((noinline)) long order(long number)
{
	if (!__dtraceenabled_shop___order__placed())
		return 0;
	__dtrace_shop___order__placed(number, number * 3);
	return 1;
}

static const struct {
	signed char byte;
	short word[3];
} memory = {-3, {10, 11, -12}};

__attribute__((noinline)) void wide(void)
{
	__asm__ volatile("990: nop\n"
			 NOTE("990b", "0", "wide", "-1@%%al 1@%%al 1@%%ah -2@%%bx 2@%%bx -4@%%ecx 4@%%ecx -8@%%rdx 8@%%rdx "
				     "-1@(%%rsi) -2@6(%%rsi) 2@2(%%rsi,%%rdi,2)")
			 NOTE("990b", "0", "crooked", "-8@%%eax -4@%%ecx")
			 NOTE("0", "0", "nowhere", "") ::
			 "a"(0x1180l), "b"(0x9000l), "c"(0xfffffffel), "d"(-5l), "S"(&memory), "D"(1l));
}

static void say(const char *who)
{
	printf("%s: sale %u refund %u checkout %s\n", who, SALE, REFUND, checkout ? "on" : "off");
	fflush(stdout);
}

static void work(const char *who)
{
	long answers = 0;
	for (long n = 1; n <= 2; n++) {
		sale(n, who);
		answers += order(n);
	}
	printf("%s: %ld answers\n", who, answers);
	say(who);
}

int main(int argc, char **argv)
{
	work(argv[1]);
	if (argc > 2) {
		printf("at %lu\n", (unsigned long)&SALE);
		fflush(stdout);
		pause();
	}
	wide();
	pid_t child = fork();
	if (!child) {
		work("child");
		_exit(0);
	}
	waitpid(child, 0, 0);
	printf("first?\n");
	work("then");
	printf("second?\n");
	work("last");
}
