/* SPDX-License-Identifier: GPL-2.0-or-later
 * Descriptor tables, page tables, first stacks: x86-64's part of the kernel. */
#include "kernel.h"

#define ENTRIES 512
#define USER_ENTRIES 256 /* of the top table: the lower half is the user's */
#define FLAGS_CLEARED_BY_SYSCALL 0x47700 /* AC, NT, DF, IF, TF, IOPL */
#define IST_DOUBLE_FAULT 1

extern word boot_pml4[ENTRIES];
extern const struct { word vector, stub; } trap_stubs[];
extern word kernel_sp;
extern void double_fault_test(void);
extern const u8 double_fault_push[], double_fault_resume[];
extern void trap_return(void), syscall_entry(void);

const word arch_kernel_space = (word)boot_pml4 - KERNEL_BASE;

static struct {
	u32 reserved0;
	word rsp[3], reserved1, ist[7], reserved2;
	u16 reserved3, io_map_base;
} __attribute__((packed)) tss = { .io_map_base = sizeof(tss) };

static word gdt[8] = {
	0,
	0x00af9a000000ffff, /* 08 kernel code */
	0x00cf92000000ffff, /* 10 kernel data */
	0x00cffa000000ffff, /* 18 user code, 32 bits: unused, but SYSRET counts from here */
	0x00cff2000000ffff, /* 20 user data */
	0x00affa000000ffff, /* 28 user code */
	0, 0,               /* 30 TSS */
};

static word idt[256][2];

/* A double fault means that the current stack cannot be used. */
static u8 double_fault_stack[PAGE_SIZE] __attribute__((aligned(16)));

struct descriptor {
	u16 limit;
	word base;
} __attribute__((packed));

static void set_gate(word vector, word stub, word kind, word ist)
{
	idt[vector][0] = (stub & 0xffff) | KERNEL_CS << 16 | ist << 32 | kind << 40 |
			 (stub >> 16 & 0xffff) << 48;
	idt[vector][1] = stub >> 32;
}

void arch_init(void)
{
	struct descriptor d;
	word base = (word)&tss;

	gdt[6] = (sizeof(tss) - 1) | (base & 0xffffff) << 16 | (word)0x89 << 40 |
		 (base >> 24 & 0xff) << 56;
	gdt[7] = base >> 32;
	tss.ist[IST_DOUBLE_FAULT - 1] = (word)(double_fault_stack + sizeof(double_fault_stack));
	d.limit = sizeof(gdt) - 1;
	d.base = (word)gdt;
	/* The data segments mean nothing to 64-bit code. They hold the user's selector for good, so that
	 * no entry or exit need change them. */
	__asm__ volatile("lgdt %0\n\t"
			 "push %1\n\t"
			 "lea 1f(%%rip), %%rax\n\t"
			 "push %%rax\n\t"
			 "lretq\n"
			 "1:\tmov %2, %%ss\n\t"
			 "mov %3, %%ds\n\t"
			 "mov %3, %%es\n\t"
			 "mov %3, %%fs\n\t"
			 "mov %3, %%gs"
			 : : "m"(d), "i"(KERNEL_CS), "r"(KERNEL_DS), "r"(USER_DS) : "rax", "memory");
	__asm__ volatile("ltr %w0" : : "r"(TSS_SELECTOR));
	for (unsigned i = 0; trap_stubs[i].stub; i++) {
		word vector = trap_stubs[i].vector;

		/* Interrupt gates; ring 3 may use the one of int3. */
		set_gate(vector, trap_stubs[i].stub, vector == VECTOR_BP ? 0xee : 0x8e,
			 vector == VECTOR_DF ? IST_DOUBLE_FAULT : 0);
	}
	d.limit = sizeof(idt) - 1;
	d.base = (word)idt;
	__asm__ volatile("lidt %0" : : "m"(d));
	wrmsr(MSR_STAR, (word)USER_CS32 << 48 | (word)KERNEL_CS << 32);
	wrmsr(MSR_LSTAR, (word)syscall_entry);
	wrmsr(MSR_SFMASK, FLAGS_CLEARED_BY_SYSCALL);
}

static int double_faults;

int arch_double_fault(struct regs *regs)
{
	u8 *frame = (u8 *)regs;

	if (regs->ip != (word)double_fault_push || frame < double_fault_stack ||
	    frame >= double_fault_stack + sizeof(double_fault_stack))
		return 0;
	regs->ip = (word)double_fault_resume;
	double_faults++;
	return 1;
}

void arch_self_test(void)
{
	double_fault_test();
	printk("vmlinux: %u double fault on its own stack\n", double_faults);
}

void arch_set_kernel_stack(word top)
{
	tss.rsp[0] = top;
	kernel_sp = top;
}

word arch_new_space(void)
{
	word space = get_free_page();

	if (space)
		memcpy((word *)virt(space) + USER_ENTRIES, boot_pml4 + USER_ENTRIES,
		       (ENTRIES - USER_ENTRIES) * sizeof(word));
	return space;
}

/* Frees the first `entries` tables below `table`, which stands `levels` above the page tables. */
static void free_tables(word table, word entries, int levels)
{
	word *entry = virt(table);

	for (word i = 0; levels && i < entries; i++)
		if (entry[i] & PTE_PRESENT)
			free_tables(PTE_FRAME(entry[i]), ENTRIES, levels - 1);
	free_page(table);
}

void arch_free_space(word space)
{
	free_tables(space, USER_ENTRIES, 3);
}

pte_t *arch_pte(word space, word address, int create)
{
	word table = space;

	for (int shift = 39; shift > 12; shift -= 9) {
		word *entry = (word *)virt(table) + (address >> shift & (ENTRIES - 1));

		if (!(*entry & PTE_PRESENT)) {
			word page = create ? get_free_page() : 0;

			if (!page)
				return 0;
			*entry = page | PTE_PRESENT | PTE_WRITE | PTE_USER;
		}
		table = PTE_FRAME(*entry);
	}
	return (pte_t *)virt(table) + (address >> 12 & (ENTRIES - 1));
}

typedef void visit_t(word address, pte_t *pte, void *data);

static void each_page(word table, word entries, int shift, word base, visit_t *visit, void *data)
{
	word *entry = virt(table);

	for (word i = 0; i < entries; i++) {
		word address = base | i << shift;

		if (shift == 12 && entry[i])
			visit(address, &entry[i], data);
		else if (shift > 12 && entry[i] & PTE_PRESENT)
			each_page(PTE_FRAME(entry[i]), ENTRIES, shift - 9, address, visit, data);
	}
}

void arch_each_page(word space, visit_t *visit, void *data)
{
	each_page(space, USER_ENTRIES, 39, 0, visit, data);
}

word arch_first_stack(word stack_top, const struct regs *regs)
{
	word *sp = (word *)(stack_top - sizeof(*regs));

	memcpy(sp, regs, sizeof(*regs));
	*--sp = (word)trap_return;
	*--sp = 0; /* rbp */
	for (int i = 0; i < 5; i++)
		*--sp = 0; /* rbx, r12 to r15 */
	*--sp = 2; /* flags: interrupts off until iretq */
	return (word)sp;
}

void arch_user_regs(struct regs *regs, word entry, word stack)
{
	memset(regs, 0, sizeof(*regs));
	regs->ss = USER_DS;
	regs->cs = USER_CS;
	regs->ip = entry;
	regs->sp = stack;
	regs->flags = 0x202;
}
