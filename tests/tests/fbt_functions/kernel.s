# Functions of every shape that fbt must know, for a kernel of IA32 that calls them and halts. What its own #BP and #UD
# handlers are told goes to port E9h in hexadecimal.
.macro function name
.globl \name
.type \name, @function
\name:
.endm
.macro end name
.size \name, . - \name
.endm

.text
function _start
    mov $stack, %esp
    lgdt segments
    mov $at_breakpoint, %eax
    mov $3, %ebx
    call set_gate
    mov $at_invalid, %eax
    mov $6, %ebx
    call set_gate
    lidt table
    call framed
    call framed_the_other_way
    call frameless
    call branch_target
    .irp n, 110, 109, 108, 107, 106, 105, 104, 103, 102, 101
    push $\n
    .endr
    call ten
    add $40, %esp
    .irp n, 0, 1, 2
    mov $\n, %eax
    call three
    .endr
    push $5
    call factorial
    add $4, %esp
    call breakpoint
    call invalid
    mov $10, %ebx
1:  call often
    dec %ebx
    jnz 1b
    cli
    hlt
end _start

function framed
    push %ebp
    .byte 0x89, 0xe5
    leave
    ret
end framed

function framed_the_other_way
    push %ebp
    .byte 0x8b, 0xec
    pop %ebp
    ret
end framed_the_other_way

function frameless
    sub $12, %esp
    mov $0x1234, %eax
    add $12, %esp
    ret
end frameless

function branch_target
    .byte 0xf3, 0x0f, 0x1e, 0xfb
    push %ebp
    mov %esp, %ebp
    pop %ebp
    ret
end branch_target

function ten
    ret
end ten

# Three ways out, with 10, 11 and 12.
function three
    cmp $1, %eax
    je 1f
    ja 2f
    mov $10, %eax
first_way: ret
1:  mov $11, %eax
second_way: rep ret
2:  mov $12, %eax
third_way: ret $0
end three

# Of its argument on the stack.
function factorial
    mov 4(%esp), %eax
    cmp $1, %eax
    jbe 1f
    dec %eax
    push %eax
    call factorial
    add $4, %esp
    mull 4(%esp)
1:  ret
end factorial

# The trap is the function's own, at the very byte of its entry.
function breakpoint
    int3
    ret
end breakpoint

function invalid
    ud2
    ret
end invalid

function often
    ret
end often

# Gate %ebx leads to %eax.
set_gate:
    lea gates(,%ebx,8), %edi
    mov %ax, (%edi)
    mov %cs, 2(%edi)
    movw $0x8e00, 4(%edi)
    shr $16, %eax
    mov %ax, 6(%edi)
    ret

at_breakpoint:
    pusha
    mov 32(%esp), %edx
    call hexadecimal
    popa
    iret

at_invalid:
    pusha
    mov 32(%esp), %edx
    call hexadecimal
    popa
    addl $2, (%esp)
    iret

hexadecimal:
    mov $8, %ecx
1:  rol $4, %edx
    mov %edx, %eax
    and $15, %eax
    mov digits(%eax), %al
    out %al, $0xe9
    loop 1b
    mov $10, %al
    out %al, $0xe9
    ret

.data
.align 8
segments_of:
        .quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff
segments:
        .word 3 * 8 - 1
        .long segments_of
digits: .ascii "0123456789abcdef"
table:  .word 7 * 8 - 1
        .long gates
gates:  .fill 7, 8, 0
        .fill 4096
stack:
