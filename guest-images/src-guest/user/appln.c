/* SPDX-License-Identifier: GPL-2.0-or-later
 * appln: the program that the guest runs in ring 3. What it prints does not depend on when the timer
 * interrupts: while two of its tasks run, only one of them writes. */
#include "format.h"
#include "sdt.h"
#include "syscall.h"

#define PROBE_POINT __attribute__((noinline, noclone))
#define PAGE 4096
#define ROUNDS 24
#define LINES 40
#define FRAMES 9
#define TURNS 10

extern long syscall(long number, long a, long b);
extern const unsigned char __executable_start[], etext[];

/* Four pages that only a page fault brings in, and that swap_out may take away again. */
static const unsigned char pattern[4][PAGE] __attribute__((aligned(PAGE))) = {
	"Trapline", "a line of traps", "through a running", "machine",
};
static unsigned char table[4 * PAGE] __attribute__((aligned(PAGE)));
/* How often each static probe site of this program ran, in this task. */
static unsigned sdt[3];

static void say(const char *fmt, ...)
{
	char line[160];
	__builtin_va_list args;

	__builtin_va_start(args, fmt);
	syscall(SYS_WRITE, (long)line, format(line, sizeof(line), fmt, args));
	__builtin_va_end(args);
}

/* A checksum that takes a while: about 8 instructions a step. */
PROBE_POINT unsigned work(unsigned seed, unsigned steps)
{
	while (steps--) {
		seed ^= seed << 13;
		seed ^= seed >> 17;
		seed ^= seed << 5;
	}
	return seed;
}

PROBE_POINT unsigned fill_table(unsigned seed)
{
	for (unsigned i = 0; i < sizeof(table); i += 4) {
		seed = seed * 1664525 + 1013904223;
		*(unsigned *)&table[i] = seed;
	}
	return fnv1a(table, table + sizeof(table));
}

/* Instructions forbidden in ring 3; the kernel skips each. */
PROBE_POINT void forbidden(void)
{
	unsigned char kept = 0x5a;

	for (int i = 0; i < 4; i++) {
		__asm__ volatile("hlt");
		__asm__ volatile("cli");
		__asm__ volatile("inb %%dx, %%al" : "+a"(kept) : "d"(0x3fd));
	}
	say("appln: al is %b after four forbidden reads\n", kept);
	__asm__ volatile("int3");
	__asm__ volatile(".byte 0xf0, 0x90"); /* lock nop */
}

/* Takes and gives back kernel memory in an order that splits and merges blocks. */
PROBE_POINT unsigned heap(void)
{
	long block[8];
	unsigned sum = 0;

	for (int i = 0; i < 8; i++) {
		SDT_SITE(appln_sdt_0, SDT_NOP5, sdt[0]);
		block[i] = syscall(SYS_KMALLOC, 24 + 40 * i, 0);
		sum = sum * 31 + (unsigned)block[i];
	}
	for (int i = 0; i < 8; i += 2)
		sum += syscall(SYS_KFREE, block[i], 0);
	long again = syscall(SYS_KMALLOC, 100, 0);
	long large = syscall(SYS_KMALLOC, 1000, 0);
	long none = syscall(SYS_KMALLOC, 100000, 0);
	say("appln: kmalloc(24) %x, kmalloc(100) %x, kmalloc(100000) %x\n", block[0], again, none);
	syscall(SYS_KFREE, again, 0);
	syscall(SYS_KFREE, large, 0);
	for (int i = 1; i < 8; i += 2)
		sum += syscall(SYS_KFREE, block[i], 0);
	say("appln: kfree of a free block gives %x\n", syscall(SYS_KFREE, block[1], 0));
	return sum;
}

/* Reads its constant pages and writes its table while the kernel keeps taking both away. */
PROBE_POINT unsigned swap(void)
{
	unsigned dropped = 0, sum = 0;

	for (int round = 0; round < ROUNDS; round++) {
		sum = sum * 31 + pattern[round & 3][round & 7];
		if (round % 3 == 0)
			table[PAGE * (round & 3) + round]++;
		dropped += syscall(SYS_SWAP, 2, 0);
	}
	say("appln: %u pages taken in %u rounds, sum %x\n", dropped, ROUNDS, (long)sum);
	return sum;
}

/* A log that outgrows the inode's direct blocks, and what the file system says of it. */
PROBE_POINT void log_file(void)
{
	unsigned sum = FNV1A_START, bytes = 0;

	for (int i = 0; i < LINES; i++) {
		unsigned n = 300 + 7 * i;
		const unsigned char *line = table + 100 * i;

		SDT_SITE(appln_sdt_1, SDT_CALL, sdt[1]);
		sum = fnv1a_more(sum, line, line + n);
		bytes += syscall(SYS_FILE_WRITE, (long)line, n);
	}
	say("appln: %u bytes written in %u writes, the file is %s\n", bytes, LINES,
	    (unsigned)syscall(SYS_FILE_SUM, 0, 0) == sum ? "as written" : "DAMAGED");
}

/* Sends some frames, more than the driver's ring holds, after a restart of the device. */
PROBE_POINT void network(void)
{
	int failed = syscall(SYS_NET_OPEN, 0, 0) | syscall(SYS_NET_CLOSE, 0, 0);

	failed |= syscall(SYS_NET_OPEN, 0, 0);
	for (int i = 0; i < FRAMES; i++) {
		SDT_SITE(appln_sdt_2, SDT_NOP2, sdt[2]);
		failed |= syscall(SYS_NET_SEND, (long)(table + 64 * i), 60 + 100 * i);
	}
	failed |= syscall(SYS_NET_CLOSE, 0, 0);
	say("appln: %u frames sent%s\n", FRAMES, failed ? ", WITH FAILURES" : "");
}

PROBE_POINT int child(void)
{
	syscall(SYS_SETUID, 1000, 0);
	say("appln: child is pid %u\n", (unsigned)syscall(SYS_GETPID, 0, 0));
	forbidden();
	unsigned sum = heap();
	sum ^= swap();
	say("appln: child's table %x\n", (long)fnv1a(table, table + sizeof(table)));
	log_file();
	network();
	say("appln: sdt sites ran %u %u %u times\n", sdt[0], sdt[1], sdt[2]);
	return sum & 0xff;
}

PROBE_POINT int start_worker(unsigned seed, unsigned steps)
{
	int pid = syscall(SYS_FORK, 0, 0);

	if (!pid)
		syscall(SYS_EXIT, work(seed, steps) & 0xff, 0);
	return pid;
}

/* Two tasks that give way to each other, under their own names and users. */
PROBE_POINT int start_yielder(const char *name, unsigned uid)
{
	int pid = syscall(SYS_FORK, 0, 0);
	unsigned sum = uid;

	if (pid)
		return pid;
	syscall(SYS_SETNAME, (long)name, 4);
	syscall(SYS_SETUID, uid, 0);
	for (int turn = 0; turn < TURNS; turn++) {
		sum = work(sum, 200);
		syscall(SYS_YIELD, 0, 0);
	}
	syscall(SYS_EXIT, sum & 0xff, 0);
	return -1;
}

/* Calls a `ret` in its data: where page tables can forbid it, the kernel ends the task. */
PROBE_POINT void run_data(void)
{
	int pid = syscall(SYS_FORK, 0, 0);

	if (!pid) {
		table[0] = 0xc3;
		((void (*)(void))table)();
		syscall(SYS_EXIT, 0, 0);
	}
	say("appln: code in data %s\n", syscall(SYS_WAIT, pid, 0) ? "is refused" : "runs");
}

PROBE_POINT void preempted(void)
{
	int first = start_worker(3, 50000), second = start_worker(4, 60000);
	unsigned sum = work(5, 40000);
	unsigned one = syscall(SYS_WAIT, first, 0), two = syscall(SYS_WAIT, second, 0);

	say("appln: workers pid %u and %u ended with %u and %u, parent's work %x\n", first, second,
	    one, two, (long)sum);
}

PROBE_POINT void yielding(void)
{
	int ping = start_yielder("ping", 1001), pong = start_yielder("pong", 1002);
	unsigned one = syscall(SYS_WAIT, ping, 0), two = syscall(SYS_WAIT, pong, 0);

	say("appln: ping and pong ended with %u and %u\n", one, two);
}

int main(void)
{
	unsigned text = fnv1a(__executable_start, etext);

	say("appln: main at %x, pid %u, text %x\n", (long)main,
	    (unsigned)syscall(SYS_GETPID, 0, 0), (long)text);
	say("appln: table %x\n", (long)fill_table(1));

	int pid = syscall(SYS_FORK, 0, 0);
	if (!pid)
		return child();
	unsigned sum = work(0x1234567, 60000);
	unsigned status = syscall(SYS_WAIT, pid, 0);
	say("appln: pid %u ended with %u, parent's work %x\n", pid, status, (long)sum);
	preempted();
	yielding();
	run_data();

	unsigned before = syscall(SYS_UPTIME, 0, 0);
	syscall(SYS_SLEEP, 5, 0);
	unsigned slept = (unsigned)syscall(SYS_UPTIME, 0, 0) - before;
	say("appln: the timer %s, text %s\n", slept >= 5 ? "ticks" : "STANDS STILL",
	    fnv1a(__executable_start, etext) == text ? "ok" : "CHANGED");
	return 0;
}
