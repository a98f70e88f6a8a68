# Each function of the x87 of 2,000 numbers, as one hash of the results; then 10^18 modulo 7.
.code64
.text
# Calls a function for 0.1234567 + n * 0.000123456789.
.macro OP name
 xor %r12,%r12
 mov $1,%r13d
1:
 mov %r13,number
 fildll number
 fldl k1
 fmulp
 fldl k2
 faddp
 \name
 fstpt result
 add result,%r12
 rol $7,%r12
 movzwl result+8,%eax
 xor %rax,%r12
 inc %r13
 cmp $2000,%r13d
 jbe 1b
 mov %r12,%rax
 call outhex
.endm
.macro sine
 fsin
.endm
.macro cosine
 fcos
.endm
.macro both
 fsincos
 fmulp
.endm
.macro tangent
 fptan
 fstp %st(0)
.endm
.macro arctangent
 fldl k3
 fpatan
.endm
.macro logarithm
 fldl k3
 fxch
 fyl2x
.endm
.macro power
 fldl k4
 fmulp
 f2xm1
.endm
.macro logarithm_plus_1
 fldl k4
 fmulp
 fldl k3
 fxch
 fyl2xp1
.endm
.globl main64
main64:
 fninit
 OP sine
 OP cosine
 OP both
 OP tangent
 call nl
 OP arctangent
 OP logarithm
 OP power
 OP logarithm_plus_1
 call nl
 movq $7,number
 fildll number
 mov $1000000000000000000,%rax
 mov %rax,number
 fildll number
2: fprem
 fnstsw %ax
 test $4,%ah
 jnz 2b
 fistpll number
 mov number,%rax
 call outhex
 call nl
 ret
.data
.align 8
number: .quad 0
k1: .double 0.000123456789
k2: .double 0.1234567
k3: .double 0.7654321
k4: .double 0.01
result: .quad 0,0
