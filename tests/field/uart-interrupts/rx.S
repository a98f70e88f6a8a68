# interrupt-driven receiver that reads one byte an interrupt; the bytes come by loop-back, and nobody sets OUT2
.code64
.text
h23: push %rax; push %rdx
 incl cnt
 mov $0x2f8,%dx; in %dx,%al
 mov $0x20,%al; out %al,$0x20
 pop %rdx; pop %rax
 iretq
.globl main64
main64:
 mov $0x23,%edi; mov $h23,%esi; mov $0x8e00,%edx; call setgate
 mov $0x11,%al; out %al,$0x20; out %al,$0xa0
 mov $0x20,%al; out %al,$0x21; mov $0x28,%al; out %al,$0xa1
 mov $4,%al; out %al,$0x21; mov $2,%al; out %al,$0xa1
 mov $1,%al; out %al,$0x21; out %al,$0xa1
 mov $0xf7,%al; out %al,$0x21; mov $0xff,%al; out %al,$0xa1
 mov $0x2fb,%dx; mov $0x83,%al; out %al,%dx
 mov $0x2f8,%dx; mov $1,%al; out %al,%dx
 mov $0x2f9,%dx; xor %al,%al; out %al,%dx
 mov $0x2fb,%dx; mov $3,%al; out %al,%dx
 mov $0x2fc,%dx; mov $0x10,%al; out %al,%dx
 mov $0x2fa,%dx; mov $0xc7,%al; out %al,%dx
 mov $0x2f9,%dx; mov $1,%al; out %al,%dx
 mov $0x2f8,%dx; mov $5,%ecx
1: out %al,%dx
 loop 1b
 sti
 mov $30000000,%ecx
1: cmpl $5,cnt
 je 2f
 dec %ecx
 jnz 1b
2: cli
 call nl
 mov cnt,%eax; call outhex
 call nl
 ret
.data
cnt: .long 0
