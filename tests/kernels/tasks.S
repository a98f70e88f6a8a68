/* The tasks of tasks.c, and ways to switch to them. */
#include "kernel.h"

        .text
        .macro  keep
        pushf
        push    %ebx
        push    %ebp
        push    %esi
        push    %edi
        mov     %esp, kept_sp
        .endm
        /* QEMU's translator writes the flags of an instruction in the same block over those of the new task. */
        .macro  begin_block
        xor     %eax, %eax
        jmp     9f
9:
        .endm
        .macro  give_back
        pop     %edi
        pop     %esi
        pop     %ebp
        pop     %ebx
        popf
        ret
        .endm

/* These return 0 when the other task has come back, 1 when there was a fault. */
        .globl  call_task, jump_task, int_task, fault_task, return_task
call_task:
        mov     4(%esp), %ecx
        mov     %ecx, far_selector
        keep
        begin_block
        lcall   *far_pointer
        .globl  after_call
after_call:
        give_back

jump_task:
        mov     4(%esp), %ecx
        mov     %ecx, far_selector
        keep
        begin_block
        ljmp    *far_pointer
after_jump:
        give_back

int_task:
        keep
        begin_block
        int     $0x50
        .globl  after_int
after_int:
        give_back

fault_task:
        keep
        xor     %eax, %eax
        mov     $0x1234, %ecx
        .globl  faulting
faulting:
        mov     %ecx, %fs
        .globl  after_fault
after_fault:
        give_back

return_task:
        keep
        pushf
        orl     $0x4000, (%esp)
        popf
        xor     %eax, %eax
        push    $2
        push    $CS32
        push    $1f
        iret
1:      give_back

/* A task: notes what it finds, and goes back, by the way that the other task asks for. */
        .globl  other_task
other_task:
        pushf
        pop     %eax
        mov     %eax, noted_flags
        mov     0x400000, %eax
        mov     %eax, noted_word
        mov     %cr3, %eax
        mov     %eax, noted_cr3
        mov     %cr0, %eax
        mov     %eax, noted_cr0
        xor     %eax, %eax
        str     %ax
        mov     %eax, noted_tr
        xor     %eax, %eax
        sldt    %ax
        mov     %eax, noted_ldt
        mov     %dr7, %eax
        mov     %eax, noted_dr7
        mov     %esp, noted_sp
        mov     (%esp), %eax
        mov     %eax, noted_top
        clts
        cmpl    $0, pops
        je      1f
        add     $4, %esp
1:      mov     way, %eax
        mov     %eax, far_selector
        test    %eax, %eax
        jz      2f
        ljmp    *far_pointer
        jmp     other_task
2:      iret
        jmp     other_task

/* A task for an exception: has the old task go on behind the instruction at fault, whose saved place is in its TSS. */
        .globl  skip_task
skip_task:
        mov     saved_ip, %eax
        mov     (%eax), %ecx
        mov     %ecx, noted_ip
        movl    $after_fault, (%eax)
        jmp     other_task

/* A task in ring 3. */
        .globl  user_task
user_task:
        int     $0x52

/* The tasks of exceptions 10 to 13, which find the error code on their stack, and the gates of others. */
        .macro  fault vector
        .globl  fault\vector
fault\vector:
        mov     $\vector, %ecx
        jmp     faulted
        .endm
        fault   10
        fault   11
        fault   12
        fault   13
        .globl  from_user, debugged
debugged:
        push    $0
        mov     $1, %ecx
        jmp     1f
from_user:
        push    $0
        mov     $0x52, %ecx
1:      mov     $DS0, %eax
        mov     %eax, %ds
        mov     %eax, %es
        mov     4(%esp), %eax
        mov     %eax, noted_ip
        mov     8(%esp), %eax
        mov     %eax, noted_cs
faulted:
        mov     %ecx, noted_vector
        mov     (%esp), %eax
        mov     %eax, noted_error
        xor     %eax, %eax
        str     %ax
        mov     %eax, noted_tr
        mov     %cr3, %eax
        mov     %eax, noted_cr3
        mov     %esp, noted_sp
        mov     $1, %eax
        mov     kept_sp, %esp
        give_back

        .data
        .balign 4
        .globl  noted_flags, noted_word, noted_cr3, noted_cr0, noted_tr, noted_ldt, noted_dr7, noted_sp, noted_top, noted_vector
        .globl  saved_ip, noted_error, noted_ip, noted_cs, pops, way
noted_flags:    .long 0
noted_word:     .long 0
noted_cr3:      .long 0
noted_cr0:      .long 0
noted_tr:       .long 0
noted_ldt:      .long 0
noted_dr7:      .long 0
noted_sp:       .long 0
noted_top:      .long 0
noted_vector:   .long 0
noted_error:    .long 0
noted_ip:       .long 0
noted_cs:       .long 0
pops:           .long 0
way:            .long 0
saved_ip:       .long 0
kept_sp:        .long 0
far_pointer:    .long 0x12345678
far_selector:   .long 0
        .section .note.GNU-stack, "", @progbits
