.text
.globl main32
h80: cmp $0x3333,%ecx; je 1f; iret
1: cli; hlt
.globl gate_fn
.type gate_fn,@function
gate_fn:
 mov $0x9999,%ecx
.globl gate_in
.type gate_in,@function
gate_in:
 nop
 lret
.globl main32
main32:
 mov $h80,%eax; movw %ax,idt+0x80*8; movw $8,idt+0x80*8+2; movw $0xee00,idt+0x80*8+4; shr $16,%eax; mov %ax,idt+0x80*8+6
 mov $tss1,%eax; mov $gdt+0x28,%edi; movw $0x67,(%edi); mov %ax,2(%edi); shr $16,%eax; mov %al,4(%edi); movb $0x89,5(%edi); movb $0,6(%edi); mov %ah,7(%edi)
 movl $stack2,tss1+4; movl $0x10,tss1+8; movw $0x68,tss1+102
 mov $gate_fn,%eax; movw %ax,gdt+0x30; movw $8,gdt+0x32; movw $0xec00,gdt+0x34; shr $16,%eax; mov %ax,gdt+0x36
 mov $0x28,%ax; ltr %ax
 push $0x23; push $ustack; push $2; push $0x1b; push $user; 
 mov $0x23,%ax; mov %ax,%ds; mov %ax,%es
 iret
user:
 mov $0x1111,%ecx
 int $0x80
 mov $0x2222,%ecx
 lcall $0x33,$0
 mov $0x3333,%ecx
 int $0x80
.bss
.align 4096
tss1: .skip 256
.skip 4096
stack2: .skip 16
.skip 4096
ustack: .skip 16
