# Instructions that were computed wrong, a line for each kind.
.code64
.text
.macro SHOW value
 mov \value,%rax
 call outhex
.endm
.globl main64
main64:
 push %rbx
 push %r12
 # 1e-300 * 1e-10 with FZ, and MXCSR after it; the larger of a denormal number and -1 with DAZ.
 ldmxcsr fz
 movsd tiny,%xmm0
 mulsd small,%xmm0
 movq %xmm0,result
 stmxcsr word
 ldmxcsr daz
 movss denormal,%xmm1
 maxss minus,%xmm1
 movd %xmm1,result+8
 ldmxcsr plain
 SHOW result
 SHOW word
 SHOW result+8
 call nl
 # MXCSR after 1 / 3 and 1 / 0, the status word after 0 / 0.
 movsd one,%xmm0
 divsd three,%xmm0
 movsd one,%xmm0
 divsd zero,%xmm0
 stmxcsr word
 SHOW word
 ldmxcsr plain
 fninit
 fldz
 fldz
 fdivrp
 fnstsw %ax
 movzwl %ax,%eax
 call outhex
 fninit
 call nl
 # PHADDW and PHSUBD of equal registers; PABSB of MM1 with REX.R.
 movdqu words,%xmm3
 phaddw %xmm3,%xmm3
 movdqu %xmm3,result
 SHOW result
 movdqu words,%xmm3
 phsubd %xmm3,%xmm3
 movdqu %xmm3,result
 SHOW result
 movq words,%mm0
 movq negative,%mm1
 .byte 0x44,0x0f,0x38,0x1c,0xc1
 movq %mm0,result
 emms
 SHOW result
 call nl
 # PCMPISTRI, "equal ordered": the end cuts the needle.
 movdqu needle,%xmm1
 xor %ecx,%ecx
 pcmpistri $0x0c,hay,%xmm1
 setc result
 movzbl result,%ebx
 SHOW %rcx
 SHOW %rbx
 call nl
 # CMPXCHG of registers, equal and not; TEST by F7 /1.
 mov $0xaaaaaaaa00000005,%rax
 mov $0xbbbbbbbb00000005,%r12
 mov $0xcccccccc00000007,%rcx
 cmpxchg %ecx,%r12d
 mov %r12,%rbx
 call outhex
 SHOW %rbx
 mov $0xaaaaaaaa00000005,%rax
 mov $0xbbbbbbbb00000006,%r12
 cmpxchg %ecx,%r12d
 mov %r12,%rbx
 call outhex
 SHOW %rbx
 mov $0x80,%eax
 .byte 0xf7,0xc8,0x80,0,0,0
 setnz result
 movzbl result,%ebx
 SHOW %rbx
 call nl
 # FISTTP of 3e9 in 32 and 16 bits, FBSTP of 987654321, FLDPI rounded down.
 fldl big
 fisttpl result
 movl result,%ebx
 fldl big
 fisttps result
 movzwl result,%r12d
 SHOW %rbx
 SHOW %r12
 fldl digits
 fbstp result
 SHOW result
 fldcw down
 fldpi
 fstpt result
 fninit
 SHOW result
 call nl
 # DPPS adds in pairs.
 movups vector,%xmm0
 movups ones,%xmm1
 dpps $0xf1,%xmm1,%xmm0
 movups %xmm0,result
 SHOW result
 call nl
 pop %r12
 pop %rbx
 ret
.data
.align 16
hay: .ascii "zzzzzzzzzzzzabcd"
needle: .ascii "abcdefghijklmnop"
words: .short 1,2,3,4,5,6,7,8
ones: .float 1,1,1,1
vector: .float 1e8,1,-1e8,1
result: .quad 0,0
tiny: .double 1e-300
small: .double 1e-10
one: .double 1
three: .double 3
zero: .double 0
big: .double 3e9
digits: .double 987654321
negative: .quad 0x80ff01fe7f028100
denormal: .long 71362
minus: .float -1
fz: .long 0x9f80
daz: .long 0x1fc0
plain: .long 0x1f80
word: .quad 0
down: .short 0x77f
