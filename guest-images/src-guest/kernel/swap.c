/* SPDX-License-Identifier: GPL-2.0-or-later
 * Taking pages away from a task. A page that the program cannot write comes back from its file; any
 * other is kept on the swap disk, which is memory that the machine is not told of otherwise. */
#include "kernel.h"

#define SLOTS 48
#define SLOT(entry) (PTE_FRAME(entry) / PAGE_SIZE)

static u8 swap_disk[SLOTS][PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));
static u8 slot_used[SLOTS];

const void *swap_page(pte_t entry)
{
	return swap_disk[SLOT(entry)];
}

void swap_free(pte_t entry)
{
	slot_used[SLOT(entry)] = 0;
}

/* Writes the page of `entry` to a free slot; the entry that finds it again, 0 when the disk is full. */
static pte_t write_page(pte_t entry)
{
	for (word slot = 0; slot < SLOTS; slot++) {
		if (slot_used[slot])
			continue;
		slot_used[slot] = 1;
		memcpy(swap_disk[slot], virt(PTE_FRAME(entry)), PAGE_SIZE);
		counters.pages_out++;
		return (pte_t)(slot * PAGE_SIZE) | PTE_SWAPPED | (entry & PTE_KEPT);
	}
	return 0;
}

/* Brings a page back. 0 when memory is out. */
PROBE_POINT int swap_in(pte_t *pte)
{
	word frame = get_free_page();

	if (!frame)
		return 0;
	memcpy(virt(frame), swap_page(*pte), PAGE_SIZE);
	swap_free(*pte);
	*pte = frame | PTE_PRESENT | (*pte & PTE_KEPT);
	counters.pages_in++;
	return 1;
}

struct search {
	u32 wanted, taken;
};

/* The clock's hand: a page used since the last pass gets another chance. */
static void consider(word address, pte_t *pte, void *data)
{
	struct search *search = data;
	pte_t kept = 0;

	if (search->taken == search->wanted || !(*pte & PTE_PRESENT))
		return;
	if (*pte & PTE_ACCESSED) {
		*pte &= ~(pte_t)PTE_ACCESSED;
		invlpg(address);
		return;
	}
	if (*pte & PTE_WRITE) {
		kept = write_page(*pte);
		if (!kept)
			return;
	}
	free_page(PTE_FRAME(*pte));
	*pte = kept;
	invlpg(address);
	search->taken++;
}

/* Takes up to `pages` pages from the task, which must be the current one; they come back when they
 * are touched again. Returns how many were taken. */
PROBE_POINT u32 swap_out(struct task_struct *task, u32 pages)
{
	struct search search = { pages, 0 };

	counters.swap_outs++;
	SDT_SITE(sdt_site_1, SDT_NOP5, counters.sdt[1]);
	arch_each_page(task->space, consider, &search);
	return search.taken;
}
