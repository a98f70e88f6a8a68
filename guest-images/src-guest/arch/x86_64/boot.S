# SPDX-License-Identifier: GPL-2.0-or-later
# The Multiboot 1 header and the way from the loader's 32-bit flat mode to long mode in the upper half.
#include "arch.h"

	.set MAGIC, 0x1BADB002
	.set FLAGS, 3			# modules on page boundaries, memory sizes wanted
	.set PRESENT, 1
	.set PRESENT_WRITE, 3
	.set PRESENT_WRITE_LARGE, 0x83
	.set NX_HIGH, 0x80000000	# PTE_NX in the upper half of an entry

	.macro PHYS symbol, register
	mov $(\symbol - KERNEL_BASE), \register
	.endm

	.section .text.boot, "ax"
	.balign 4
	.long MAGIC, FLAGS, -(MAGIC + FLAGS)

	.code32
	.globl _start
	.type _start, @function
_start:
	cli
	cld
	mov %eax, %esi			# the loader's magic; ebx holds its information
	# The first 2 MiB by small pages: text is read and executed, constants are read, the rest is
	# read and written.
	PHYS boot_page_table, %edi
	xor %eax, %eax
1:	mov $PRESENT_WRITE, %ecx
	mov $NX_HIGH, %edx
	cmp $(_stext - KERNEL_BASE), %eax
	jb 2f
	cmp $(_sdata - KERNEL_BASE), %eax
	jae 2f
	mov $PRESENT, %ecx
	cmp $(_srodata - KERNEL_BASE), %eax
	jae 2f
	xor %edx, %edx
2:	or %eax, %ecx
	mov %ecx, (%edi)
	mov %edx, 4(%edi)
	add $8, %edi
	add $0x1000, %eax
	cmp $0x200000, %eax
	jb 1b
	# The others by large ones.
	PHYS boot_page_directory, %edi
	PHYS boot_page_table, %ecx
	or $PRESENT_WRITE, %ecx
	mov %ecx, (%edi)
3:	add $8, %edi
	lea PRESENT_WRITE_LARGE(%eax), %ecx
	mov %ecx, (%edi)
	movl $NX_HIGH, 4(%edi)
	add $0x200000, %eax
	cmp $DIRECT_MAP, %eax
	jb 3b
	# At 0 (for the next few lines) and at KERNEL_BASE.
	PHYS boot_page_directory, %eax
	or $PRESENT_WRITE, %eax
	PHYS boot_pdpt, %edi
	mov %eax, (%edi)
	mov %eax, 510 * 8(%edi)
	lea PRESENT_WRITE(%edi), %eax
	PHYS boot_pml4, %edi
	mov %eax, (%edi)
	mov %eax, 511 * 8(%edi)
	mov %edi, %cr3
	mov %cr4, %eax
	or $0x20, %eax			# PAE
	mov %eax, %cr4
	mov $MSR_EFER, %ecx
	rdmsr
	or $(EFER_SCE | EFER_LME | EFER_NXE), %eax
	wrmsr
	mov %cr0, %eax
	or $0x80010000, %eax		# PG, WP
	mov %eax, %cr0
	PHYS boot_gdt_register, %eax
	lgdt (%eax)
	ljmp $KERNEL_CS, $(long_mode - KERNEL_BASE)

	.code64
long_mode:
	movabs $high, %rax
	jmp *%rax
high:
	mov $boot_stack_top, %rsp
	# The low mapping has done its work.
	movq $0, boot_pml4
	movq $0, boot_pdpt
	mov %cr3, %rax
	mov %rax, %cr3
	xor %ebp, %ebp			# the last frame of every back trace
	mov %esi, %edi
	mov %ebx, %esi
	call kernel_main
4:	cli
	hlt
	jmp 4b
	.size _start, . - _start

	.balign 8
boot_gdt:
	.quad 0
	.quad 0x00af9a000000ffff	# KERNEL_CS: 64-bit code
boot_gdt_register:
	.word . - boot_gdt - 1
	.long boot_gdt - KERNEL_BASE

	.bss
	.balign 4096
	.globl boot_pml4
boot_pml4:
	.skip 4096
boot_pdpt:
	.skip 4096
boot_page_directory:
	.skip 4096
boot_page_table:
	.skip 4096
boot_stack:
	.skip 8192
	.globl boot_stack_top
boot_stack_top:

	.section .note.GNU-stack, "", @progbits
