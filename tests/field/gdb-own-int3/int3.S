# Executes INT3 five times, and prints how often its handler ran.
.text
.globl main32
main32:
  mov $handler,%eax
  mov %ax,idt+24
  movw $8,idt+26
  movw $0x8e00,idt+28
  shr $16,%eax
  mov %ax,idt+30
  mov $5,%ecx
.globl trap, after, handler
trap: int3
after: dec %ecx
  jnz trap
  mov count,%eax
  call outhex
  call nl
  ret
handler: incl count
  iret
.data
count: .long 0
