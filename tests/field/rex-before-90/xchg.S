# F3 41 90 with EAX = 1 and R8D = 2, then LAHF and SAHF with REX, which changes neither.
.code64
.text
.globl main64
main64:
 mov $1,%eax
 mov $2,%r8d
 .byte 0xf3,0x41,0x90
 mov %r8,%r12
 call outhex
 mov %r12,%rax
 call outhex
 call nl
 mov $0,%eax
 mov $0x1234,%esp
 mov $0xd5,%ah
 .byte 0x41,0x9e
 mov $0,%eax
 .byte 0x41,0x9f
 mov $stacktop-8,%esp
 movzbl %ah,%eax
 call outhex
 call nl
 ret
