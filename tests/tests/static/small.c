/* SPDX-License-Identifier: GPL-2.0-or-later
 * The first process of a Linux guest, 32-bit code without a C library: says what it sees of its semaphore and of the
 * pointer of its macro-declared probe. */
#include <trapline/probe.h>

/* Pages that nothing else is on. 1 keeps them out of the bss. */
__attribute__((aligned(4096))) volatile unsigned short semaphores[2 * 4096] = {[0] = 1, [2 * 4096 - 1] = 1};
#define TURN semaphores[2048]
__asm__(".globl turn_semaphore\n.set turn_semaphore, semaphores + 2*2048\n");
extern void *volatile done __asm__("systemtap_probe_nl__done") __attribute__((visibility("hidden")));

static long call(long number, long a, const void *b, long c)
{
	long result;
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
	return result;
}

__attribute__((noinline)) void turn(long n)
{
	if (TURN)
		__asm__ volatile("990: nop\n"
				 ".pushsection .note.stapsdt,\"\",@note\n"
				 ".balign 4\n.4byte 992f-991f, 994f-993f, 3\n"
				 "991: .asciz \"stapsdt\"\n992: .balign 4\n"
				 "993: .4byte 990b, 0, turn_semaphore\n"
				 ".asciz \"small\", \"turn\", \"-4@%%ecx 2@turn_semaphore\"\n"
				 "994: .balign 4\n.popsection\n" :: "c"(n));
	TRAPLINE_PROBE_nl(done, n, n * -10000000000ll);
}

void _start(void)
{
	char text[] = "small: turn ? done ?\n";
	turn(1);
	turn(-2);
	text[12] = '0' + TURN;
	text[19] = done ? '1' : '0';
	call(4, 1, text, sizeof text - 1);
	for (;;)
		call(29, 0, 0, 0);
}
