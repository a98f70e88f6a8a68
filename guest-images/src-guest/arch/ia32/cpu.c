/* SPDX-License-Identifier: GPL-2.0-or-later
 * Descriptor tables, page tables, first stacks: IA32's part of the kernel. */
#include "kernel.h"

extern u32 boot_page_directory[1024];
extern const struct { u32 vector, stub; } trap_stubs[];
extern void trap_return(void);

const word arch_kernel_space = (word)boot_page_directory - KERNEL_BASE;

static struct {
	u32 link, esp0, ss0, unused[22];
	u16 trap, io_map_base;
} tss = { .ss0 = KERNEL_DS, .io_map_base = sizeof(tss) };

static u32 gdt[6][2] = {
	{ 0, 0 },
	{ 0x0000ffff, 0x00cf9a00 }, /* 08 kernel code */
	{ 0x0000ffff, 0x00cf9200 }, /* 10 kernel data */
	{ 0x0000ffff, 0x00cffa00 }, /* 18 user code */
	{ 0x0000ffff, 0x00cff200 }, /* 20 user data */
	{ 0, 0 },                   /* 28 TSS */
};

static u32 idt[256][2];

struct descriptor {
	u16 limit;
	word base;
} __attribute__((packed));

void arch_init(void)
{
	struct descriptor d;
	word base = (word)&tss;

	gdt[5][0] = (sizeof(tss) - 1) | base << 16;
	gdt[5][1] = (base & 0xff000000) | 0x8900 | ((base >> 16) & 0xff);
	d.limit = sizeof(gdt) - 1;
	d.base = (word)gdt;
	__asm__ volatile("lgdt %0\n\t"
			 "ljmp %1, $1f\n"
			 "1:\tmov %2, %%ds\n\t"
			 "mov %2, %%es\n\t"
			 "mov %2, %%ss\n\t"
			 "mov %3, %%fs\n\t"
			 "mov %3, %%gs"
			 : : "m"(d), "i"(KERNEL_CS), "r"(KERNEL_DS), "r"(0) : "memory");
	__asm__ volatile("ltr %w0" : : "r"(TSS_SELECTOR));
	for (unsigned i = 0; trap_stubs[i].stub; i++) {
		u32 vector = trap_stubs[i].vector;
		u32 kind = 0x8e00; /* interrupt gate, ring 0 */

		if (vector == VECTOR_BP)
			kind = 0xee00;
		if (vector == VECTOR_SYSCALL)
			kind = 0xef00; /* trap gate: interrupts stay on */
		idt[vector][0] = KERNEL_CS << 16 | (trap_stubs[i].stub & 0xffff);
		idt[vector][1] = (trap_stubs[i].stub & 0xffff0000) | kind;
	}
	d.limit = sizeof(idt) - 1;
	d.base = (word)idt;
	__asm__ volatile("lidt %0" : : "m"(d));
}

void arch_set_kernel_stack(word top)
{
	tss.esp0 = top;
}

word arch_new_space(void)
{
	word space = get_free_page();

	if (space)
		memcpy((u32 *)virt(space) + 768, boot_page_directory + 768, 1024);
	return space;
}

void arch_free_space(word space)
{
	u32 *directory = virt(space);

	for (unsigned i = 0; i < 768; i++)
		if (directory[i] & PTE_PRESENT)
			free_page(PTE_FRAME(directory[i]));
	free_page(space);
}

pte_t *arch_pte(word space, word address, int create)
{
	u32 *entry = (u32 *)virt(space) + (address >> 22);

	if (!(*entry & PTE_PRESENT)) {
		word table = create ? get_free_page() : 0;

		if (!table)
			return 0;
		*entry = table | PTE_PRESENT | PTE_WRITE | PTE_USER;
	}
	return (pte_t *)virt(PTE_FRAME(*entry)) + (address >> 12 & 1023);
}

void arch_each_page(word space, void (*visit)(word address, pte_t *pte, void *data), void *data)
{
	u32 *directory = virt(space);

	for (word i = 0; i < 768; i++) {
		if (!(directory[i] & PTE_PRESENT))
			continue;
		pte_t *table = virt(PTE_FRAME(directory[i]));

		for (word j = 0; j < 1024; j++)
			if (table[j])
				visit(i << 22 | j << 12, &table[j], data);
	}
}

word arch_first_stack(word stack_top, const struct regs *regs)
{
	word *sp = (word *)(stack_top - sizeof(*regs));

	memcpy(sp, regs, sizeof(*regs));
	*--sp = (word)trap_return;
	*--sp = 0; /* ebp */
	*--sp = 0; /* ebx */
	*--sp = 0; /* esi */
	*--sp = 0; /* edi */
	*--sp = 2; /* flags: interrupts off until iret */
	return (word)sp;
}

void arch_user_regs(struct regs *regs, word entry, word stack)
{
	memset(regs, 0, sizeof(*regs));
	regs->ds = regs->es = regs->ss = USER_DS;
	regs->fs = regs->gs = USER_DS;
	regs->cs = USER_CS;
	regs->ip = entry;
	regs->sp = stack;
	regs->flags = 0x202;
}
