/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What C cannot say, for both widths: the start, the system call, the return from a signal, threads, and a call
 * that a signal handler can cut short. */

#include <asm/unistd.h>

	.text
	.globl _start, syscall7, restorer, spawn, guarded, guard_out
#ifdef __x86_64__
_start:
	mov	%rsp, %rdi
	and	$-16, %rsp
	call	begin

syscall7:
	mov	%rdi, %rax
	mov	%rsi, %rdi
	mov	%rdx, %rsi
	mov	%rcx, %rdx
	mov	%r8, %r10
	mov	%r9, %r8
	mov	8(%rsp), %r9
	syscall
	ret

restorer:
	mov	$__NR_rt_sigreturn, %eax
	syscall

spawn:
	xchg	%rcx, %r8
	mov	%rcx, %r10
	mov	$__NR_clone, %eax
	syscall
	test	%rax, %rax
	jnz	1f
	pop	%rax
	pop	%rdi
	call	*%rax
	xor	%edi, %edi
	mov	$__NR_exit, %eax
	syscall
1:	ret

guarded:
	push	%rbx
	push	%rbp
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	sub	$8, %rsp
	mov	%rsp, guard_sp(%rip)
	mov	%rdi, %rax
	mov	%rsi, %rdi
	call	*%rax
guard_out:
	add	$8, %rsp
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbp
	pop	%rbx
	ret
#else
_start:
	mov	%esp, %eax
	and	$-16, %esp
	sub	$12, %esp
	push	%eax
	call	begin

syscall7:
	push	%ebp
	push	%edi
	push	%esi
	push	%ebx
	mov	20(%esp), %eax
	mov	24(%esp), %ebx
	mov	28(%esp), %ecx
	mov	32(%esp), %edx
	mov	36(%esp), %esi
	mov	40(%esp), %edi
	mov	44(%esp), %ebp
	int	$0x80
	pop	%ebx
	pop	%esi
	pop	%edi
	pop	%ebp
	ret

restorer:
	mov	$__NR_rt_sigreturn, %eax
	int	$0x80

spawn:
	push	%edi
	push	%esi
	push	%ebx
	mov	16(%esp), %ebx
	mov	20(%esp), %ecx
	mov	24(%esp), %edx
	mov	32(%esp), %edi
	mov	28(%esp), %esi
	mov	$__NR_clone, %eax
	int	$0x80
	test	%eax, %eax
	jnz	1f
	pop	%eax
	call	*%eax
	xor	%ebx, %ebx
	mov	$__NR_exit, %eax
	int	$0x80
1:	pop	%ebx
	pop	%esi
	pop	%edi
	ret

guarded:
	push	%ebx
	push	%ebp
	push	%esi
	push	%edi
	mov	20(%esp), %eax
	push	24(%esp)
	mov	%esp, guard_sp
	call	*%eax
guard_out:
	add	$4, %esp
	pop	%edi
	pop	%esi
	pop	%ebp
	pop	%ebx
	ret
#endif
	.section .note.GNU-stack, "", @progbits
