# SPDX-License-Identifier: GPL-2.0-or-later
# Where the ring-3 program begins, and its one way into the kernel.
#include "syscall.h"
	.text
	.globl _start
	.type _start, @function
_start:
	xor %ebp, %ebp
	call main
	mov %eax, %edi
	mov $SYS_EXIT, %eax
	syscall
	ud2
	.size _start, . - _start

	# word syscall(word number, word arg1, word arg2)
	.globl syscall
	.type syscall, @function
syscall:
	push %rbp
	mov %rsp, %rbp
	mov %rdi, %rax
	mov %rsi, %rdi
	mov %rdx, %rsi
	syscall				# takes rcx and r11, which a call may
	leave
	ret
	.size syscall, . - syscall

	.section .note.GNU-stack, "", @progbits
