/* SPDX-License-Identifier: GPL-2.0-or-later
 * The program's memory: nothing is loaded until it is touched. */
#include "kernel.h"

#define MAX_SEGMENTS 6
#define FAULT_PRESENT 1
#define FAULT_WRITE 2

/* All tasks run the same program. */
static struct segment segments[MAX_SEGMENTS];
static u32 nr_segments;

struct elf_header {
	u8 ident[16];
	u16 type, machine;
	u32 version;
	word entry, phoff, shoff;
	u32 flags;
	u16 ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
};

#if __SIZEOF_LONG__ == 4
struct program_header {
	u32 type;
	word offset, vaddr, paddr, filesz, memsz;
	u32 flags;
	word align;
};
#else
struct program_header {
	u32 type, flags;
	word offset, vaddr, paddr, filesz, memsz, align;
};
#endif

/* Reads the ELF file's headers; its pages come in by do_page_fault. 0, or -1 for a bad file. */
int program_load(const u8 *file, word size, word *entry, word *base, word *end)
{
	const struct elf_header *elf = (const void *)file;
	const struct program_header *ph = (const void *)(file + elf->phoff);

	if (size < sizeof(*elf) || elf->ident[0] != 0x7f || elf->ident[1] != 'E' ||
	    elf->ident[4] != __SIZEOF_LONG__ / 4 || elf->phoff + elf->phnum * sizeof(*ph) > size)
		return -1;
	*base = ~(word)0;
	*end = 0;
	for (u32 i = 0; i < elf->phnum; i++, ph++) {
		struct segment *s = &segments[nr_segments];

		if (ph->type != 1 || !ph->memsz)
			continue;
		if (nr_segments == MAX_SEGMENTS || ph->offset + ph->filesz > size)
			return -1;
		s->start = ph->vaddr;
		s->end = ph->vaddr + ph->memsz;
		s->file_end = ph->vaddr + ph->filesz;
		s->file = file + ph->offset;
		s->writable = ph->flags & 2;
		s->executable = ph->flags & 1;
		nr_segments++;
		if (s->start < *base)
			*base = s->start & -PAGE_SIZE;
		if (s->end > *end)
			*end = s->end;
	}
	*entry = elf->entry;
	return nr_segments ? 0 : -1;
}

static void fill_from(const struct segment *s, word page, u8 *frame)
{
	word from = page < s->start ? s->start : page;
	word to = page + PAGE_SIZE < s->file_end ? page + PAGE_SIZE : s->file_end;

	if (from < to)
		memcpy(frame + (from - page), s->file + (from - s->start), to - from);
}

static const struct segment *segment_of(word address)
{
	for (u32 i = 0; i < nr_segments; i++)
		if (address >= (segments[i].start & -PAGE_SIZE) &&
		    address < ((segments[i].end + PAGE_SIZE - 1) & -PAGE_SIZE))
			return &segments[i];
	return 0;
}

/* Brings in the page of `address`, from the swap disk or from the program's file. 0 when there is
 * nothing that belongs there, or no memory. */
static int load_page(word address)
{
	word page = address & -PAGE_SIZE, frame;
	const struct segment *s = segment_of(address);
	pte_t *pte, flags = PTE_WRITE | PTE_NX;

	if (s)
		flags = (s->writable ? PTE_WRITE : 0) | (s->executable ? 0 : PTE_NX);
	else if (address >= USER_STACK_TOP ||
		 address < USER_STACK_TOP - USER_STACK_PAGES * PAGE_SIZE)
		return 0;
	pte = arch_pte(current_task->space, page, 1);
	if (pte && *pte & PTE_SWAPPED)
		return swap_in(pte);
	frame = pte ? get_free_page() : 0;
	if (!frame)
		return 0;
	if (s)
		fill_from(s, page, virt(frame));
	*pte = frame | PTE_PRESENT | PTE_USER | flags;
	return 1;
}

/* A page of the program or its stack that is not there yet is brought in and the instruction is
 * tried again; anything else ends the task. The kernel's own accesses to user memory come here too. */
PROBE_POINT void do_page_fault(struct regs *regs, word error)
{
	word address = read_cr2();

	counters.page_faults++;
	current_task->page_faults++;
	if (!(error & FAULT_PRESENT) && load_page(address))
		return;
	printk("page fault: pid %u address %x ip %x error %x\n", current_task->pid, address,
	       regs->ip, error);
	if (!FROM_USER(regs) && address >= USER_TOP)
		panic("page fault in the kernel");
	do_exit(139);
}

struct copy {
	word to;
	int failed;
};

static void copy_page(word address, pte_t *pte, void *data)
{
	struct copy *copy = data;
	pte_t *to = arch_pte(copy->to, address, 1);
	word frame = to ? get_free_page() : 0;

	if (!frame) {
		copy->failed = 1;
		return;
	}
	memcpy(virt(frame), *pte & PTE_PRESENT ? virt(PTE_FRAME(*pte)) : swap_page(*pte), PAGE_SIZE);
	*to = frame | PTE_PRESENT | (*pte & PTE_KEPT);
}

int copy_space(word to, word from)
{
	struct copy copy = { to, 0 };

	arch_each_page(from, copy_page, &copy);
	return copy.failed ? -1 : 0;
}

static void drop_page(word address, pte_t *pte, void *data)
{
	(void)data;
	if (*pte & PTE_PRESENT)
		free_page(PTE_FRAME(*pte));
	else
		swap_free(*pte);
	*pte = 0;
	invlpg(address);
}

void free_space(word space)
{
	arch_each_page(space, drop_page, 0);
	arch_free_space(space);
}
