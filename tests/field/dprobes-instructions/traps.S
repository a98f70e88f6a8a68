# Executes each instruction on which DProbes allows no probe five times, and prints how often their handlers ran.
.macro gate n, to
  mov $\to,%eax; mov %eax,%edx; and $0xffff,%eax; or $0x00080000,%eax; mov %eax,idt+8*\n
  and $0xffff0000,%edx; or $0x8e00,%edx; mov %edx,idt+8*\n+4
.endm
.text
.globl main32
main32:
  gate 3, on_int3
  gate 4, on_into
  gate 0x30, on_int
  mov $5,%esi
1:
.globl site_int3
site_int3: int3
.globl site_int
site_int: int $0x30
  mov $0x7fffffff,%eax
  add $1,%eax
.globl site_into
site_into: into
.globl site_wait
site_wait: fwait
  dec %esi
  jnz 1b
  mov ran,%eax; call outhex
  mov ran+4,%eax; call outhex
  mov ran+8,%eax; call outhex
  jmp nl
on_int3: incl ran; iret
on_int: incl ran+4; iret
on_into: incl ran+8; iret
.data
ran: .long 0, 0, 0
