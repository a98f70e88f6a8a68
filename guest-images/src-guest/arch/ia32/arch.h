/* SPDX-License-Identifier: GPL-2.0-or-later
 * What the kernel needs to know of IA32. Another architecture brings a file of this name with the
 * same names in it. */
#ifndef ARCH_H
#define ARCH_H

#define KERNEL_BASE 0xC0000000 /* physical 0 is mapped here */
#define DIRECT_MAP 0x04000000  /* bytes of physical memory mapped at KERNEL_BASE */
#define USER_TOP KERNEL_BASE   /* no user address is above */
#define USER_STACK_TOP 0xBFFFF000
#define USER_STACK_PAGES 8
#define PAGE_SIZE 4096

#define KERNEL_CS 0x08
#define KERNEL_DS 0x10
#define USER_CS 0x1b
#define USER_DS 0x23
#define TSS_SELECTOR 0x28

#define VECTOR_BP 3
#define VECTOR_UD 6
#define VECTOR_DF 8
#define VECTOR_GP 13
#define VECTOR_PF 14
#define VECTOR_TIMER 0x20
#define VECTOR_SYSCALL 0x80

#ifndef __ASSEMBLER__
#include "trapos.h"

/* What a trap leaves on the kernel stack, lowest address first. sp and ss are there only when the
 * trap came from ring 3. */
struct regs {
	word di, si, bp, sp_ignored, bx, dx, cx, ax;
	word gs, fs, es, ds;
	word vector, error;
	word ip, cs, flags, sp, ss;
};

#define SYSCALL_NUMBER(regs) ((regs)->ax)
#define SYSCALL_ARG1(regs) ((regs)->bx)
#define SYSCALL_ARG2(regs) ((regs)->cx)
#define FROM_USER(regs) (((regs)->cs & 3) == 3)

/* Page table entries. */
typedef u32 pte_t;
#define PTE_PRESENT 0x001
#define PTE_WRITE 0x002
#define PTE_USER 0x004
#define PTE_ACCESSED 0x020
#define PTE_DIRTY 0x040
#define PTE_LARGE 0x080
#define PTE_NX 0 /* these page tables cannot say it */
#define PTE_FRAME(pte) ((pte) & ~0xfffu)

static inline void outb(u16 port, u8 value)
{
	__asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline u8 inb(u16 port)
{
	u8 value;
	__asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
	return value;
}

static inline word read_cr2(void)
{
	word value;
	__asm__ volatile("mov %%cr2, %0" : "=r"(value));
	return value;
}

static inline void load_cr3(word value)
{
	__asm__ volatile("mov %0, %%cr3" : : "r"(value) : "memory");
}

static inline void invlpg(word address)
{
	__asm__ volatile("invlpg (%0)" : : "r"(address) : "memory");
}

void arch_init(void);
/* Facilities of this architecture alone. */
static inline void arch_self_test(void) {}
/* Whether the double fault was made on purpose; the registers are then where to go on. */
static inline int arch_double_fault(struct regs *regs)
{
	(void)regs;
	return 0;
}
void arch_set_kernel_stack(word top);
/* The physical address of a new address space with the kernel in it; 0 when memory is out. */
word arch_new_space(void);
/* Frees the tables (not the pages) of an address space. */
void arch_free_space(word space);
/* The entry for a user address; with `create`, tables are added. 0: no table (or no memory). */
pte_t *arch_pte(word space, word address, int create);
/* Calls `visit` for each entry of a user page that is not 0, present or not. */
void arch_each_page(word space, void (*visit)(word address, pte_t *pte, void *data), void *data);
extern const word arch_kernel_space;
/* Saves this stack in *from and goes on with the stack `to`. */
void switch_to(word *from, word to);
/* Builds the stack on which a new task first returns through trap_return; gives its top. */
word arch_first_stack(word stack_top, const struct regs *regs);
void arch_user_regs(struct regs *regs, word entry, word stack);

#endif
#endif
