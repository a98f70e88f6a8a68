// SPDX-License-Identifier: GPL-2.0-or-later
/* Mappings: made, split, protected, moved, shared, copied on write, and the signal of an access to an unmapped one. */

#include "stress.h"

#define N 64

static volatile int faults, fault_signal, fault_code;
static volatile unsigned long fault_address;
static uint8_t *volatile mend_at;

/* Notes the fault, then makes the page writable so that the instruction goes on. */
static void mend(int signal, siginfo_t *info, void *context)
{
	(void)context;
	faults++;
	fault_signal = signal;
	fault_code = info->si_code;
	fault_address = (unsigned long)info->si_addr;
	SYS3(mprotect, mend_at, PAGE, PROT_READ | PROT_WRITE);
}

static const char *mmap_games(void)
{
	uint8_t *at = pages(N * PAGE, PROT_READ | PROT_WRITE);
	for (int i = 0; i < N; i++)
		at[i * PAGE + i] = i + 1;
	/* Every second page goes, and comes back empty. */
	for (int i = 0; i < N; i += 2)
		EXPECT("munmap", SYS2(munmap, at + i * PAGE, PAGE), 0);
	for (int i = 0; i < N; i += 2)
		if (map(at + i * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1) != at + i * PAGE)
			return "a page does not come back to its place";
	for (int i = 0; i < N; i++)
		EXPECT("a byte", at[i * PAGE + i], i % 2 ? i + 1 : 0);
	/* Moved: the contents go along, the old place is empty. */
	uint8_t *place = pages(N * PAGE, PROT_NONE);
	long moved = syscall7(__NR_mremap, (long)(at + PAGE), PAGE, PAGE, 3, (long)place, 0);
	EXPECT("mremap", moved, (long)place);
	EXPECT("a moved byte", place[1], 2);
	EXPECT("msync of the old place", SYS3(msync, at + PAGE, PAGE, MS_SYNC), -ENOMEM);
	return 0;
}

static const char *mprotect_games(void)
{
	volatile uint8_t *at = pages(N * PAGE, PROT_READ | PROT_WRITE);
	EXPECT("sigaction", handle(SIGSEGV, mend, 0), 0);
	for (int i = 0; i < N; i++)
		at[i * PAGE] = i;
	EXPECT("mprotect", SYS3(mprotect, at, N * PAGE, PROT_READ), 0);
	for (int i = 0; i < N; i++) {
		volatile uint8_t *byte = at + i * PAGE + 61 * i;
		mend_at = (uint8_t *)at + i * PAGE;
		EXPECT("a byte that may be read", *byte, 0);
		EXPECT("faults before the write", faults, i);
		*byte = i + 1;
		EXPECT("faults after the write", faults, i + 1);
		EXPECT("the signal", fault_signal, SIGSEGV);
		EXPECT("si_code", fault_code, SEGV_ACCERR);
		EXPECT("si_addr", fault_address, (long)byte);
		EXPECT("the byte", *byte, (uint8_t)(i + 1));
	}
	/* A page without any access, one hundred times over. */
	for (int i = 0; i < 100; i++) {
		EXPECT("mprotect", SYS3(mprotect, at, PAGE, PROT_NONE), 0);
		mend_at = (uint8_t *)at;
		at[5] = i;
		EXPECT("faults", faults, N + i + 1);
		EXPECT("si_addr", fault_address, (long)(at + 5));
		EXPECT("the byte", at[5], i);
	}
	return 0;
}

static const char *copy_on_write(void)
{
	uint8_t *own = pages(N * PAGE, PROT_READ | PROT_WRITE);
	volatile uint8_t *shared = map(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	for (int i = 0; i < N; i++)
		own[i * PAGE] = i;
	for (int generation = 1; generation <= 4; generation++) {
		long child = SYS0(fork);
		if (child == 0) {
			for (int i = 0; i < N; i++)
				own[i * PAGE]++;
			for (int i = 0; i < N; i++)
				if (own[i * PAGE] != (uint8_t)(i + 1))
					quit(1);
			*shared += 1;
			quit(0);
		}
		EXPECT("the child", wait_for(child), EXITED(0));
		EXPECT("the shared byte", *shared, generation);
		for (int i = 0; i < N; i++)
			EXPECT("the parent's byte", own[i * PAGE], i);
	}
	return 0;
}

/* Small pieces given back out of what may be huge pages read as zero; their neighbours keep their contents. */
static const char *huge_pages(void)
{
	const size_t size = 8 << 20;
	uint8_t *at = pages(size, PROT_READ | PROT_WRITE);
	SYS3(madvise, at, size, MADV_HUGEPAGE);
	for (size_t i = 0; i < size; i += PAGE)
		at[i] = 1 + i / PAGE % 250;
	for (size_t i = 0; i < size; i += 16 * PAGE)
		EXPECT("madvise", SYS3(madvise, at + i, PAGE, MADV_DONTNEED), 0);
	for (size_t i = 0; i < size; i += PAGE)
		EXPECT("a byte", at[i], i / PAGE % 16 ? 1 + i / PAGE % 250 : 0);
	return 0;
}

static const char *shared_file(void)
{
	long file = SYS2(memfd_create, "file", 0);
	EXPECT("ftruncate", SYS2(ftruncate, file, 2 * PAGE), 0);
	uint8_t *a = map(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file);
	volatile uint8_t *b = map(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file);
	uint8_t *private = map(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file);
	if (failed(a) || failed((void *)b) || failed(private))
		return "the file cannot be mapped";
	for (int i = 0; i < 200; i++) {
		a[i] = i;
		EXPECT("the byte through the other mapping", b[i], i);
		EXPECT("through the private one", private[i], i);
	}
	private[0] = 99;
	a[0] = 1;
	EXPECT("the private byte", private[0], 99);
	EXPECT("the shared byte", b[0], 1);
	EXPECT("pwrite", write_at(file, "xyz", 3, 100), 3);
	EXPECT("the written byte", b[101], 'y');
	return 0;
}

/* Every frame of the stack is a new page below the last. */
static int __attribute__((noinline)) deeper(int levels)
{
	volatile uint8_t page[PAGE];
	page[0] = levels;
	int below = levels ? deeper(levels - 1) : 0;
	return below + (page[0] == (uint8_t)levels);
}

static const char *stack(void)
{
	EXPECT("frames with their contents", deeper(1000), 1001);
	return 0;
}

const struct check memory_checks[] = {
	{ "mmap", mmap_games },
	{ "mprotect", mprotect_games },
	{ "copy on write", copy_on_write },
	{ "huge pages", huge_pages },
	{ "shared file", shared_file },
	{ "stack", stack },
	{ 0, 0 },
};
