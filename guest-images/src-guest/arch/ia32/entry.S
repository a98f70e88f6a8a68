# SPDX-License-Identifier: GPL-2.0-or-later
# The way in and out of the kernel: one stub a vector, one common path, and the stack switch.
#include "arch.h"

	.text
	.macro STUB vector, error=0
stub_\vector:
	.if \error == 0
	push $0				# the CPU pushed no error code
	.endif
	push $\vector
	jmp trap_entry
	.endm

	STUB 0
	STUB 1
	STUB 2
	STUB 3
	STUB 4
	STUB 5
	STUB 6
	STUB 7
	STUB 8, 1
	STUB 9
	STUB 10, 1
	STUB 11, 1
	STUB 12, 1
	STUB 13, 1
	STUB 14, 1
	STUB 16
	STUB 17, 1
	STUB 18
	STUB 19
	STUB 32
	STUB 39				# the first 8259's spurious interrupt
	STUB 128

	.globl trap_entry
	.type trap_entry, @function
trap_entry:
	push %ds
	push %es
	push %fs
	push %gs
	pusha
	cld
	mov $KERNEL_DS, %eax
	mov %eax, %ds
	mov %eax, %es
	push %esp
	call trap_dispatch
	add $4, %esp
	.globl trap_return
trap_return:
	popa
	pop %gs
	pop %fs
	pop %es
	pop %ds
	add $8, %esp			# vector, error code
	iret
	.size trap_entry, . - trap_entry

	# void switch_to(word *from, word to)
	.globl switch_to
	.type switch_to, @function
switch_to:
	push %ebp
	mov %esp, %ebp
	mov 8(%ebp), %eax
	mov 12(%ebp), %edx
	push %ebx
	push %esi
	push %edi
	pushf
	mov %esp, (%eax)
	mov %edx, %esp
	popf
	pop %edi
	pop %esi
	pop %ebx
	pop %ebp
	ret
	.size switch_to, . - switch_to

	# { vector, stub } pairs for the IDT, ended by a stub of 0.
	.section .rodata
	.balign 4
	.globl trap_stubs
trap_stubs:
	.irp vector, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,16,17,18,19,32,39,128
	.long \vector, stub_\vector
	.endr
	.long 0, 0

	.section .note.GNU-stack, "", @progbits
