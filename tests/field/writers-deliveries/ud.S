/* The delivery of #UD writes its frame to the stack: EIP, CS and EFLAGS below the pointer. */
.text
.globl main32
main32:
  mov $handler, %eax
  mov %ax, idt+48
  movw $8, idt+50
  movw $0x8e00, idt+52
  shr $16, %eax
  mov %ax, idt+54
  mov %esp, saved
  mov $top, %esp
  movl $0x1234, -12(%esp)
undefined:
  ud2
  mov saved, %esp
  ret
handler:
  addl $2, (%esp)
  iret
.data
saved: .long 0
.globl slot
.align 16
.skip 64
slot: .long 0
  .long 0, 0
top: .long 0
