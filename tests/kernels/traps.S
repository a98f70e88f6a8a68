/* Entry points of all vectors, and run( ), which enters a piece of code and comes back when it traps. */
#include "kernel.h"

#ifdef __x86_64__
#define AX %rax
#define SP %rsp
#define WORD 8
#define NUMBER .quad
#else
#define AX %eax
#define SP %esp
#define WORD 4
#define NUMBER .long
#endif

        .text
        .macro entry vector
        .balign 16
1:      .if \vector != 8 && \vector != 17 && (\vector < 10 || \vector > 14)
        push    $0
        .endif
        push    $\vector
        jmp     common
        .section .rodata
        NUMBER  1b
        .text
        .endm

        .section .rodata
        .balign 8
        .globl  entries
entries:
        .text
        .altmacro
        .set    n, 0
        .rept   256
        entry   %n
        .set    n, n + 1
        .endr
        .noaltmacro

#ifdef __x86_64__
common: push    %rax
        push    %rbx
        push    %rcx
        push    %rdx
        push    %rbp
        push    %rsi
        push    %rdi
        push    %r8
        push    %r9
        push    %r10
        push    %r11
        push    %r12
        push    %r13
        push    %r14
        push    %r15
        mov     %rsp, %rdi
        call    interrupted
        test    %rax, %rax
        jnz     1f
        /* An interrupt that was only counted. */
        pop     %r15
        pop     %r14
        pop     %r13
        pop     %r12
        pop     %r11
        pop     %r10
        pop     %r9
        pop     %r8
        pop     %rdi
        pop     %rsi
        pop     %rbp
        pop     %rdx
        pop     %rcx
        pop     %rbx
        pop     %rax
        add     $16, %rsp
        iretq
1:      mov     run_sp, %rsp
        pop     %r15
        pop     %r14
        pop     %r13
        pop     %r12
        pop     %rbp
        pop     %rbx
        popf
        mov     $trapped, %eax
        ret

        .globl  run
/* run(rdi: code, esi: cs, rdx: flags) */
run:    pushf
        push    %rbx
        push    %rbp
        push    %r12
        push    %r13
        push    %r14
        push    %r15
        mov     %rsp, run_sp
        mov     $DS0, %eax
        test    $3, %esi
        jz      1f
        mov     $USER_DS, %eax
1:      mov     %eax, %ds
        mov     %eax, %es
        push    %rax
        push    $run_stack_top
        push    %rdx
        push    %rsi
        push    %rdi
        mov     $0x1111, %eax
        mov     $0x2222, %ecx
        mov     $0x3333, %edx
        mov     $0x4444, %ebx
        mov     $0x5555, %ebp
        mov     $0x6666, %esi
        mov     $0x7777, %edi
        iretq
#else
common: push    %eax
        push    %ebx
        push    %ecx
        push    %edx
        push    %ebp
        push    %esi
        push    %edi
        mov     $DS0, %eax
        mov     %eax, %ds
        mov     %eax, %es
        push    %esp
        call    interrupted
        pop     %ecx
        test    %eax, %eax
        jnz     1f
        pop     %edi
        pop     %esi
        pop     %ebp
        pop     %edx
        pop     %ecx
        pop     %ebx
        pop     %eax
        add     $8, %esp
        iret
1:      mov     run_sp, %esp
        pop     %edi
        pop     %esi
        pop     %ebp
        pop     %ebx
        popf
        mov     $trapped, %eax
        ret

        .globl  run
run:    mov     4(%esp), %eax
        mov     8(%esp), %ecx
        mov     12(%esp), %edx
        pushf
        push    %ebx
        push    %ebp
        push    %esi
        push    %edi
        mov     %esp, run_sp
        test    $3, %ecx
        jz      1f
        mov     $USER_DS, %ebx
        mov     %ebx, %ds
        mov     %ebx, %es
        push    %ebx
        push    $run_stack_top
        jmp     2f
1:      mov     $run_stack_top, %esp
2:      push    %edx
        push    %ecx
        push    %eax
        mov     $0x1111, %eax
        mov     $0x2222, %ecx
        mov     $0x3333, %edx
        mov     $0x4444, %ebx
        mov     $0x5555, %ebp
        mov     $0x6666, %esi
        mov     $0x7777, %edi
        iret
#endif

        .bss
        .balign 16
        .globl  run_stack_top, trap_stack_top, ist_stack_top
        .skip   8192
run_stack_top:
        .skip   8192
trap_stack_top:
        .skip   8192
ist_stack_top:
run_sp: .skip   8
        .section .note.GNU-stack, "", @progbits
