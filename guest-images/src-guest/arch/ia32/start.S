# SPDX-License-Identifier: GPL-2.0-or-later
# Where the ring-3 program begins, and its one way into the kernel.
#include "syscall.h"
	.text
	.globl _start
	.type _start, @function
_start:
	xor %ebp, %ebp
	call main
	mov %eax, %ebx
	mov $SYS_EXIT, %eax
	int $0x80
	ud2
	.size _start, . - _start

	# word syscall(word number, word arg1, word arg2)
	.globl syscall
	.type syscall, @function
syscall:
	push %ebp
	mov %esp, %ebp
	push %ebx
	mov 8(%ebp), %eax
	mov 12(%ebp), %ebx
	mov 16(%ebp), %ecx
	int $0x80
	pop %ebx
	leave
	ret
	.size syscall, . - syscall

	.section .note.GNU-stack, "", @progbits
