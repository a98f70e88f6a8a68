# SPDX-License-Identifier: GPL-2.0-or-later
# The way in and out of the kernel: one stub a vector, one common path, SYSCALL, and the stack switch.
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

	.macro SAVE
	.irp register, ax,cx,dx,bx,bp,si,di
	push %r\register
	.endr
	.irp register, 8,9,10,11,12,13,14,15
	push %r\register
	.endr
	.endm

	.macro RESTORE
	.irp register, 15,14,13,12,11,10,9,8
	pop %r\register
	.endr
	.irp register, di,si,bp,bx,dx,cx,ax
	pop %r\register
	.endr
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

	.globl trap_entry
	.type trap_entry, @function
trap_entry:
	SAVE
	cld
	mov %rsp, %rdi
	call trap_dispatch
	.globl trap_return
trap_return:
	RESTORE
	add $16, %rsp			# vector, error code
	iretq
	.size trap_entry, . - trap_entry

	# SYSCALL changes no stack and saves nothing in memory; interrupts are off by SFMASK until the
	# frame, which is that of a trap, is complete.
	.globl syscall_entry
	.type syscall_entry, @function
syscall_entry:
	mov %rsp, user_sp
	mov kernel_sp, %rsp
	push $USER_DS
	push user_sp
	push %r11			# flags
	push $USER_CS
	push %rcx			# ip
	push $0
	push $VECTOR_SYSCALL
	SAVE
	cld
	sti
	mov %rsp, %rdi
	call trap_dispatch
	cli				# no interrupt may come on the user's stack
	RESTORE
	mov 16(%rsp), %rcx
	mov 32(%rsp), %r11
	mov 40(%rsp), %rsp
	sysretq
	.size syscall_entry, . - syscall_entry

	# void switch_to(word *from, word to)
	.globl switch_to
	.type switch_to, @function
switch_to:
	push %rbp
	mov %rsp, %rbp
	push %rbx
	push %r12
	push %r13
	push %r14
	push %r15
	pushfq
	mov %rsp, (%rdi)
	mov %rsi, %rsp
	popfq
	pop %r15
	pop %r14
	pop %r13
	pop %r12
	pop %rbx
	pop %rbp
	ret
	.size switch_to, . - switch_to

	# Makes a double fault: a push onto a page that is not there, which cannot be reported there either.
	.globl double_fault_test
	.type double_fault_test, @function
double_fault_test:
	push %rbp
	mov %rsp, %rbp
	mov $KERNEL_BASE, %rsp		# nothing is mapped below
	.globl double_fault_push, double_fault_resume
double_fault_push:
	push %rax
double_fault_resume:
	leave
	ret
	.size double_fault_test, . - double_fault_test

	# { vector, stub } pairs for the IDT, ended by a stub of 0.
	.section .rodata
	.balign 8
	.globl trap_stubs
trap_stubs:
	.irp vector, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,16,17,18,19,32,39
	.quad \vector, stub_\vector
	.endr
	.quad 0, 0

	.bss
	.balign 8
user_sp:
	.skip 8
	.globl kernel_sp		# the same as the TSS's rsp0
kernel_sp:
	.skip 8

	.section .note.GNU-stack, "", @progbits
