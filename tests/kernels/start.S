/* The entry of every test kernel: the headers of the boot protocols, and the way to main( ) in 32-bit protected mode, or in
 * 64-bit mode where the compiler makes 64-bit code. MULTIBOOT, MULTIBOOT2 and PVH choose the headers. */
#include "kernel.h"

        .section .boot, "ax"
        .balign 8
#ifdef MULTIBOOT
        .long 0x1badb002, 3, -(0x1badb002 + 3)
        .balign 8
#endif
#ifdef MULTIBOOT2
multiboot2:
        .long 0xe85250d6, 0, multiboot2_end - multiboot2
        .long -(0xe85250d6 + multiboot2_end - multiboot2)
        /* The information that it wants: the command line, the memory map, and what ACPI there is if there is any. */
        .short 1, 0
        .long 16, 1, 6
        .short 1, 1
        .long 12, 15
        .balign 8
        .short 0, 0
        .long 8
multiboot2_end:
#endif
#ifdef PVH
        .pushsection .note.Xen, "a", @note
        .long 4, 4, 18
        .asciz "Xen"
        .long start
        .popsection
#endif

        .code32
        .globl start
start:  mov     $boot_stack_top, %esp
        mov     %eax, boot_magic
        mov     %ebx, boot_info
        lgdt    gdt_pointer
        ljmp    $CS32, $1f
1:      mov     $DS0, %eax
        mov     %eax, %ds
        mov     %eax, %es
        mov     %eax, %ss
        mov     %eax, %fs
        mov     %eax, %gs
#ifdef __x86_64__
        call    map
        call    enter_long_mode
        ljmp    $CS64, $2f
        .code64
2:      xor     %eax, %eax
        mov     %eax, %ds
        mov     %eax, %es
        lgdt    gdt_pointer
#endif
        call    main
        mov     %eax, %edi
        mov     %edi, %eax
        out     %eax, $0xf4
3:      hlt
        jmp     3b

#ifdef __x86_64__
        .code32
        .text
/* One to one: the first 2 MiB by pages of 4 KiB, which tests take away, the rest of the first 4 GiB by pages of 2 MiB. */
map:    mov     $pml4, %edi
        movl    $pdpt + 7, (%edi)
        mov     $pdpt, %edi
        mov     $directories + 7, %eax
        mov     $4, %ecx
1:      mov     %eax, (%edi)
        add     $8, %edi
        add     $4096, %eax
        loop    1b
        mov     $directories, %edi
        mov     $0x87, %eax
        mov     $2048, %ecx
1:      mov     %eax, (%edi)
        add     $8, %edi
        add     $0x200000, %eax
        loop    1b
        movl    $pages + 7, directories
        mov     $pages, %edi
        mov     $7, %eax
        mov     $512, %ecx
1:      mov     %eax, (%edi)
        add     $8, %edi
        add     $4096, %eax
        loop    1b
        ret

/* From protected mode without paging to compatibility mode (SDM volume 3, 10.8.5). */
        .globl enter_long_mode
enter_long_mode:
        mov     %cr4, %eax
        or      $0x20, %eax
        mov     %eax, %cr4
        mov     $pml4, %eax
        mov     %eax, %cr3
        mov     $0xc0000080, %ecx
        rdmsr
        or      $0x901, %eax
        wrmsr
        mov     %cr0, %eax
        or      $0x80010000, %eax
        mov     %eax, %cr0
        ret

/* From compatibility mode to protected mode without paging (10.8.5.4). */
        .globl leave_long_mode
leave_long_mode:
        mov     %cr0, %eax
        and     $0x7fffffff, %eax
        mov     %eax, %cr0
        mov     $0xc0000080, %ecx
        rdmsr
        and     $~0x100, %eax
        wrmsr
        ret

        .code64
/* there_and_back(rdi): leaves long mode and comes back. Stores CR0 and EFER outside, EFER in compatibility mode, and CS there. */
        .globl  there_and_back
there_and_back:
        push    %rbx
        push    %rbp
        mov     %edi, %ebp
        push    $CS32
        push    $1f
        lretq
        .code32
1:      call    leave_long_mode
        mov     %cr0, %eax
        mov     %eax, (%ebp)
        mov     $0xc0000080, %ecx
        rdmsr
        mov     %eax, 4(%ebp)
        call    enter_long_mode
        mov     $0xc0000080, %ecx
        rdmsr
        mov     %eax, 8(%ebp)
        mov     %cs, 12(%ebp)
        ljmp    $CS64, $2f
        .code64
2:      pop     %rbp
        pop     %rbx
        ret

        .bss
        .balign 4096
        .globl  pml4, pages
pml4:   .skip   4096
pdpt:   .skip   4096
directories:
        .skip   4 * 4096
pages:  .skip   4096
#endif

        .data
        .balign 16
        .globl  gdt, gdt_pointer
/* The selectors are in kernel.h. The descriptor of the TSS is filled in by set_up_traps( ). */
gdt:    .quad   0
        .quad   0x00cf9b000000ffff      /* CS32: code, ring 0 */
        .quad   0x00cf93000000ffff      /* DS0: data, ring 0 */
        .quad   0x00af9b000000ffff      /* CS64: 64-bit code, ring 0 */
        .quad   0x00cffb000000ffff      /* USER_CS32: code, ring 3 */
        .quad   0x00cff3000000ffff      /* USER_DS: data, ring 3 */
        .quad   0x00affb000000ffff      /* USER_CS64: 64-bit code, ring 3 */
        .quad   0, 0                    /* TSS_SEL */
        .quad   0x00cf13000000ffff      /* ABSENT_DATA */
        .quad   0x00af1b000000ffff      /* ABSENT_CODE */
        .quad   0x00cf91000000ffff      /* READ_ONLY: data that cannot be written */
        .quad   0x00cf99000000ffff      /* EXECUTE_ONLY: code that cannot be read */
        .quad   0x00ef9b000000ffff      /* LONG_AND_BIG: code with L and D */
        .quad   0x00af9f000000ffff      /* CONFORMING: 64-bit code, ring 0 */
        .quad   0x0000820000000000      /* LDT_SEL: an empty LDT */
        .quad   0                       /* its upper half in long mode */
        .quad   0x00cff3000000ffff      /* LAST */
gdt_end:
gdt_pointer:
        .word   gdt_end - gdt - 1
#ifdef __x86_64__
        .quad   gdt
#else
        .long   gdt
#endif
        .balign 4
        .globl  boot_magic, boot_info
boot_magic:
        .long   0
boot_info:
        .long   0

        .bss
        .balign 16
        .skip   16384
boot_stack_top:
        .section .note.GNU-stack, "", @progbits
