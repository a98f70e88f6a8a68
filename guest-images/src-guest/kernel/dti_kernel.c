/* SPDX-License-Identifier: GPL-2.0-or-later
 * What the Driver Tracing Interface needs of this kernel. */
#include "driver_trace.h"
#include "kernel.h"

#define PAGES 48
#define CRASHING_CALL 5

static u8 pages[PAGES][PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));
static u8 taken[PAGES];
static int ready, crash;

static char kernel_early[1024];
DEFINE_DTI_HANDLE(kernel_trace, "kernel", 4096, DTI_LEVEL_INFO, kernel_early);

static unsigned this_cpu(void)
{
	return 0;
}

static unsigned long irq_save(void)
{
	word flags;

	__asm__ volatile("pushf; pop %0; cli" : "=r"(flags) : : "memory");
	return flags;
}

static void irq_restore(unsigned long flags)
{
	__asm__ volatile("push %0; popf" : : "r"(flags) : "memory", "cc");
}

static uint64_t clock(void)
{
	u32 low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

/* First fit. */
static void *allocate(unsigned long count)
{
	unsigned long free = 0;

	if (!ready)
		return 0;
	for (unsigned long i = 0; i < PAGES; i++) {
		free = taken[i] ? 0 : free + 1;
		if (free == count) {
			memset(taken + i + 1 - count, 1, count);
			return memset(pages[i + 1 - count], 0, count * PAGE_SIZE);
		}
	}
	return 0;
}

static void give_back(void *start, unsigned long count)
{
	memset(taken + ((u8 *)start - pages[0]) / PAGE_SIZE, 0, count);
}

static uint64_t physical(const void *page)
{
	return (word)page - KERNEL_BASE;
}

const struct dti_kernel dti_kernel = {
	.cpus = 1,
	.cpu = this_cpu,
	.irq_save = irq_save,
	.irq_restore = irq_restore,
	.clock = clock,
	.clock_kind = DTI_CLOCK_TSC,
	.allocate = allocate,
	.free = give_back,
	.physical = physical,
	.printk = format,
};

void trace_memory_ready(void)
{
	ready = 1;
	INIT_DTI_HANDLE(kernel_trace);
}

void trace_options(const char *cmdline)
{
	static const char option[] = "dti=crash";

	for (; *cmdline; cmdline++) {
		u32 i = 0;

		while (option[i] && cmdline[i] == option[i])
			i++;
		if (!option[i])
			crash = 1;
	}
}

void trace_crash(struct dti_handle *handle, unsigned call)
{
	if (crash && call == CRASHING_CALL)
		dti_handle_event(handle, DTI_LEVEL_ERR, (u8 *)virt(DIRECT_MAP) - 20, 40);
}
