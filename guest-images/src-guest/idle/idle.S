# SPDX-License-Identifier: GPL-2.0-or-later
# A kernel that halts forever and serves only its timer: for scripts that probe no guest.
# It is loaded by Multiboot 1 and stays where it is: 4 KB pages map its own megabyte, and nothing else.
	.set MAGIC, 0x1BADB002
	.set FLAGS, 0
	.set PRESENT_WRITE, 3
	.set CODE, 8
	.set TIMER_VECTOR, 0x20
	.set HZ_DIVISOR, 11932		# of 1.193182 MHz: 100 Hz

	.section .text, "ax"
	.balign 4
	.long MAGIC, FLAGS, -(MAGIC + FLAGS)

	.code32
	.globl _start
	.type _start, @function
_start:
	cli
	cld
	mov $page_table + 256 * 8, %edi
	mov $0x100000 | PRESENT_WRITE, %eax
1:	mov %eax, (%edi)
	movl $0, 4(%edi)
	add $8, %edi
	add $0x1000, %eax
	cmp $0x200000 | PRESENT_WRITE, %eax
	jb 1b
	movl $page_table + PRESENT_WRITE, page_directory
	movl $page_directory + PRESENT_WRITE, pdpt
	movl $pdpt + PRESENT_WRITE, pml4
	mov $pml4, %eax
	mov %eax, %cr3
	mov %cr4, %eax
	or $0x20, %eax			# PAE
	mov %eax, %cr4
	mov $0xC0000080, %ecx		# EFER.LME
	rdmsr
	or $0x100, %eax
	wrmsr
	mov %cr0, %eax
	or $0x80000000, %eax
	mov %eax, %cr0
	lgdt gdt_register
	ljmp $CODE, $long_mode

	.code64
long_mode:
	mov $16, %eax
	mov %eax, %ds
	mov %eax, %es
	mov %eax, %ss
	mov $stack_top, %esp
	# The gate of the timer.
	mov $timer, %eax
	mov $idt + TIMER_VECTOR * 16, %edi
	mov %ax, (%rdi)
	movw $CODE, 2(%rdi)
	movw $0x8E00, 4(%rdi)
	shr $16, %eax
	mov %ax, 6(%rdi)
	lidt idt_register
	# The interrupt controllers: vectors from 0x20, the timer alone.
	mov $0x11, %al
	out %al, $0x20
	out %al, $0xA0
	mov $TIMER_VECTOR, %al
	out %al, $0x21
	mov $0x28, %al
	out %al, $0xA1
	mov $4, %al
	out %al, $0x21
	mov $2, %al
	out %al, $0xA1
	mov $1, %al
	out %al, $0x21
	out %al, $0xA1
	mov $0xFE, %al
	out %al, $0x21
	mov $0xFF, %al
	out %al, $0xA1
	# The timer: channel 0, mode 2.
	mov $0x34, %al
	out %al, $0x43
	mov $HZ_DIVISOR & 0xFF, %al
	out %al, $0x40
	mov $HZ_DIVISOR >> 8, %al
	out %al, $0x40
	sti
	.globl idle
	.type idle, @function
idle:
	hlt
	jmp idle
	.size idle, . - idle

	.globl timer
	.type timer, @function
timer:
	push %rax
	mov $0x20, %al
	out %al, $0x20
	pop %rax
	iretq
	.size timer, . - timer

	.section .data, "aw"
	.balign 8
gdt:	.quad 0
	.quad 0x00209A0000000000	# 64-bit code
	.quad 0x0000920000000000	# data
gdt_register:
	.word . - gdt - 1
	.long gdt
	.balign 8
idt_register:
	.word (TIMER_VECTOR + 1) * 16 - 1
	.quad idt

	.section .bss, "aw", @nobits
	.balign 4096
pml4:	.skip 4096
pdpt:	.skip 4096
page_directory:
	.skip 4096
page_table:
	.skip 4096
idt:	.skip (TIMER_VECTOR + 1) * 16
	.balign 16
	.skip 4096
stack_top:
