# SPDX-License-Identifier: GPL-2.0-or-later
# The Multiboot 1 header and the way from the loader's flat mode to the higher half.
#include "arch.h"

	.set MAGIC, 0x1BADB002
	.set FLAGS, 3			# modules on page boundaries, memory sizes wanted

	.section .text.boot, "ax"
	.balign 4
	.long MAGIC, FLAGS, -(MAGIC + FLAGS)

	.globl _start
	.type _start, @function
_start:
	cli
	cld
	mov %eax, %esi			# the loader's magic; ebx holds its information
	# Large pages map physical 0..DIRECT_MAP at 0 (for the next few lines) and at KERNEL_BASE.
	mov $(boot_page_directory - KERNEL_BASE), %edi
	mov $(PTE_PRESENT_WRITE_LARGE), %eax
	mov $(DIRECT_MAP >> 22), %ecx
1:	mov %eax, (%edi)
	mov %eax, (KERNEL_BASE >> 20)(%edi)
	add $0x400000, %eax
	add $4, %edi
	loop 1b
	mov %cr4, %eax
	or $0x10, %eax			# PSE
	mov %eax, %cr4
	mov $(boot_page_directory - KERNEL_BASE), %eax
	mov %eax, %cr3
	mov %cr0, %eax
	or $0x80010000, %eax		# PG, WP
	mov %eax, %cr0
	mov $high, %eax
	jmp *%eax
high:
	mov $boot_stack_top, %esp
	# The low mapping has done its work.
	mov $boot_page_directory, %edi
	mov $(DIRECT_MAP >> 22), %ecx
	xor %eax, %eax
	rep stosl
	mov %cr3, %eax
	mov %eax, %cr3
	xor %ebp, %ebp			# the last frame of every back trace
	push %ebx
	push %esi
	call kernel_main
2:	cli
	hlt
	jmp 2b
	.size _start, . - _start

	.set PTE_PRESENT_WRITE_LARGE, 0x83

	.bss
	.balign 4096
	.globl boot_page_directory
boot_page_directory:
	.skip 4096
boot_stack:
	.skip 8192
	.globl boot_stack_top
boot_stack_top:

	.section .note.GNU-stack, "", @progbits
