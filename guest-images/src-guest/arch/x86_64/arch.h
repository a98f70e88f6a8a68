/* SPDX-License-Identifier: GPL-2.0-or-later
 * What the kernel needs to know of x86-64: the names are those of arch/ia32/arch.h. */
#ifndef ARCH_H
#define ARCH_H

#define KERNEL_BASE 0xFFFFFFFF80000000 /* physical 0 is mapped here */
#define DIRECT_MAP 0x04000000          /* bytes of physical memory mapped at KERNEL_BASE */
#define USER_TOP 0x00007FFFFFFFF000    /* no user address is above */
#define USER_STACK_TOP USER_TOP
#define USER_STACK_PAGES 8
#define PAGE_SIZE 4096

/* SYSCALL and SYSRET fix the order: kernel code and data, then (32-bit code,) data, code of users. */
#define KERNEL_CS 0x08
#define KERNEL_DS 0x10
#define USER_CS32 0x1b
#define USER_DS 0x23
#define USER_CS 0x2b
#define TSS_SELECTOR 0x30

#define VECTOR_BP 3
#define VECTOR_UD 6
#define VECTOR_DF 8
#define VECTOR_GP 13
#define VECTOR_PF 14
#define VECTOR_TIMER 0x20
#define VECTOR_SYSCALL 0x80 /* no vector: what syscall_entry writes in its place */

#define MSR_EFER 0xc0000080
#define EFER_SCE 0x001
#define EFER_LME 0x100
#define EFER_NXE 0x800
#define MSR_STAR 0xc0000081
#define MSR_LSTAR 0xc0000082
#define MSR_SFMASK 0xc0000084

#ifndef __ASSEMBLER__
#include "trapos.h"

/* What a trap leaves on the kernel stack, lowest address first. */
struct regs {
	word r15, r14, r13, r12, r11, r10, r9, r8;
	word di, si, bp, bx, dx, cx, ax;
	word vector, error;
	word ip, cs, flags, sp, ss;
};

#define SYSCALL_NUMBER(regs) ((regs)->ax)
#define SYSCALL_ARG1(regs) ((regs)->di)
#define SYSCALL_ARG2(regs) ((regs)->si)
#define FROM_USER(regs) (((regs)->cs & 3) == 3)

/* Page table entries. */
typedef word pte_t;
#define PTE_PRESENT 0x001
#define PTE_WRITE 0x002
#define PTE_USER 0x004
#define PTE_ACCESSED 0x020
#define PTE_DIRTY 0x040
#define PTE_LARGE 0x080
#define PTE_NX 0x8000000000000000
#define PTE_FRAME(pte) ((pte) & 0x000ffffffffff000)

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

static inline void wrmsr(u32 msr, word value)
{
	__asm__ volatile("wrmsr" : : "c"(msr), "a"((u32)value), "d"((u32)(value >> 32)));
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

/* See arch/ia32/arch.h. */
void arch_init(void);
void arch_self_test(void);
int arch_double_fault(struct regs *regs);
void arch_set_kernel_stack(word top);
word arch_new_space(void);
void arch_free_space(word space);
pte_t *arch_pte(word space, word address, int create);
void arch_each_page(word space, void (*visit)(word address, pte_t *pte, void *data), void *data);
extern const word arch_kernel_space;
void switch_to(word *from, word to);
word arch_first_stack(word stack_top, const struct regs *regs);
void arch_user_regs(struct regs *regs, word entry, word stack);

#endif
#endif
