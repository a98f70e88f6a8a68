.code64
.text
.globl main64
main64:
 mov $hello,%rsi
 call outs
 ret
.data
hello: .asciz "64-bit code\n"
