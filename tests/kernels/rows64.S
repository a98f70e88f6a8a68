/* Rows about exceptions and system instructions in 64-bit and compatibility mode. */
#include "kernel.h"
#include "rows.h"

#define EFER 0xc0000080
#define TF 0x102
#define AC 0x40002
#define NT 0x4002

        /* In ring 3. */
        .macro user name, show
        row_with USER_CS64, 2, "\name", "\show"
        .endm
        /* In 32-bit code under long mode: ring 0, ring 3. */
        .macro narrow name, show
        row_with CS32, 2, "\name", "\show"
        .code32
        .endm
        .macro narrow_user name, show
        row_with USER_CS32, 2, "\name", "\show"
        .code32
        .endm

        .text
/* Division */
        row "div by zero, 32 bits", "" ; xor %ecx, %ecx ; div %ecx
        row "div by zero, 8 bits", "" ; xor %ecx, %ecx ; div %cl
        row "div by zero, 64 bits", "" ; xor %ecx, %ecx ; div %rcx
        row "div overflow, 8 bits", "" ; mov $0x400, %eax ; mov $2, %cl ; div %cl
        row "div overflow, 16 bits", "" ; mov $2, %edx ; mov $2, %ecx ; div %cx
        row "div overflow, 32 bits", "" ; mov $2, %edx ; mov $2, %ecx ; div %ecx
        row "div overflow, 64 bits", "" ; mov $2, %edx ; mov $2, %ecx ; div %rcx
        row "div that fits", "ad" ; xor %edx, %edx ; mov $7, %eax ; mov $2, %ecx ; div %ecx
        row "idiv of the lowest by -1, 32 bits", "" ; mov $0x80000000, %eax ; cltd ; mov $-1, %ecx ; idiv %ecx
        row "idiv of the lowest by -1, 64 bits", "" ; mov $1, %eax ; shl $63, %rax ; cqto ; mov $-1, %rcx ; idiv %rcx
        row "idiv of a negative", "ad" ; mov $-7, %eax ; cltd ; mov $2, %ecx ; idiv %ecx
        narrow "aam by zero", "" ; .byte 0xd4, 0
        narrow "aam by ten", "a" ; mov $73, %al ; aam

/* Software interrupts and debug traps */
        row "int3", "" ; int3
        row "int 3 of two bytes", "" ; int $3
        row "int1", "" ; .byte 0xf1
        user "int1 in ring 3", "" ; .byte 0xf1
        row "int of a gate that is absent", "" ; int $0x31
        user "int3 in ring 3", "" ; int3
        user "int without the right", "" ; int $0x21
        user "int with the right", "" ; int $0x30
        narrow "into without overflow", "" ; test %eax, %eax ; into
        narrow "into with overflow", "" ; mov $0x7fffffff, %eax ; inc %eax ; into
        narrow "bound inside", "" ; movl $0, PLAIN_PAGE ; movl $5, PLAIN_PAGE + 4 ; mov $5, %eax ; bound %eax, PLAIN_PAGE
        narrow "bound outside", "" ; movl $0, PLAIN_PAGE ; movl $5, PLAIN_PAGE + 4 ; mov $6, %eax ; bound %eax, PLAIN_PAGE
        row_with CS64, TF, "a step", "" ; nop
        row_with CS64, TF, "a step over mov to ss", "" ; mov %ss, %eax ; mov %eax, %ss ; nop
        row_with CS64, TF, "a step over pushf", "a" ; pushf ; pop %rax
        row_with USER_CS64, TF, "a step in ring 3", "" ; nop
        row_with CS64, TF, "a step of cpuid", "" ; cpuid
        row_with CS64, TF, "a step of cpuid and more", "" ; cpuid ; nop
        row_with CS64, TF, "a step of a jump", "" ; jmp 4f ; nop ; 4: nop
        row_with CS64, TF, "int1 with TF", "" ; .byte 0xf1
        row_with CS64, TF, "ud2 with TF", "" ; ud2
        row "TF by popf", "" ; pushf ; orl $0x100, (%rsp) ; popf ; nop ; nop
        row "flags of ud2", "f" ; ud2
        row "flags of int3", "f" ; int3
        row "flags of int1", "f" ; .byte 0xf1

        .macro system_call mask
        mov     $0xc0000082, %ecx
        mov     $4f, %eax
        xor     %edx, %edx
        wrmsr
        mov     $0xc0000084, %ecx
        mov     $\mask, %eax
        wrmsr
        mov     $0xc0000081, %ecx
        xor     %eax, %eax
        mov     $CS64, %edx
        wrmsr
        pushf
        orl     $0x100, (%rsp)
        popf
        syscall
        nop
4:      nop
        nop
        .endm
        row "syscall with TF that the mask clears", "" ; system_call 0x100
        row "syscall with TF that stays", "" ; system_call 0

/* Opcodes that there are not */
        row "ud2", "" ; ud2
        row "ud1", "" ; ud1 %eax, %eax
        row "ud0", "" ; .byte 0x0f, 0xff, 0xc0
        row "opcode 06 in 64-bit code", "" ; .byte 0x06
        row "opcode 27 in 64-bit code", "" ; .byte 0x27
        row "opcode 60 in 64-bit code", "" ; .byte 0x60
        row "opcode 9a in 64-bit code", "" ; .byte 0x9a
        row "opcode ce in 64-bit code", "" ; .byte 0xce
        row "opcode d4 in 64-bit code", "" ; .byte 0xd4
        row "opcode d6 in 64-bit code", "" ; .byte 0xd6
        row "opcode 0f 04", "" ; .byte 0x0f, 0x04
        row "opcode 0f 24", "" ; .byte 0x0f, 0x24, 0xc0
        row "lock nop", "" ; .byte 0xf0, 0x90
        row "lock mov", "" ; .byte 0xf0, 0x89, 0x00
        row "lock add to a register", "" ; .byte 0xf0, 0x01, 0xc0
        row "lock add to memory", "" ; mov $PLAIN_PAGE, %edi ; lock addl $1, (%rdi)
        row "lock cmp", "" ; mov $PLAIN_PAGE, %edi ; .byte 0xf0, 0x39, 0x07
        row "mov to cs", "" ; .byte 0x8e, 0xc8
        row "mov to segment register 6", "" ; .byte 0x8e, 0xf0
        row "lea of a register", "" ; .byte 0x8d, 0xc0
        row "an instruction of 15 bytes", "" ; .fill 14, 1, 0x66 ; nop
        row "an instruction of 16 bytes", "" ; .fill 15, 1, 0x66 ; nop
        row "VEX", "" ; .byte 0xc5, 0xf8, 0x77
        row "xgetbv", "" ; xor %ecx, %ecx ; xgetbv
        row "rdrand", "" ; .byte 0x0f, 0xc7, 0xf0
        row "movbe", "" ; .byte 0x0f, 0x38, 0xf0, 0x00
        row "andn", "" ; .byte 0xc4, 0xe2, 0x60, 0xf2, 0xc0
        row "popcnt", "a" ; mov $0xf0f, %eax ; popcnt %eax, %eax
        row "lzcnt", "a" ; mov $0x10, %ecx ; .byte 0xf3, 0x0f, 0xbd, 0xc1
        row "tzcnt", "a" ; mov $0x10, %ecx ; .byte 0xf3, 0x0f, 0xbc, 0xc1
        row "monitor", "" ; mov $PLAIN_PAGE, %eax ; xor %ecx, %ecx ; xor %edx, %edx ; monitor
        user "monitor in ring 3", "" ; mov $PLAIN_PAGE, %eax ; xor %ecx, %ecx ; xor %edx, %edx ; monitor
        row "vmcall", "" ; .byte 0x0f, 0x01, 0xc1
        row "vmxoff", "" ; .byte 0x0f, 0x01, 0xc4
        row "vmrun", "" ; .byte 0x0f, 0x01, 0xd8
        row "clac", "" ; .byte 0x0f, 0x01, 0xca
        row "swapgs", "" ; swapgs ; swapgs
        row "rdtscp", "c" ; rdtscp
        row "rdpid", "" ; .byte 0xf3, 0x0f, 0xc7, 0xf8
        row "rdfsbase", "" ; .byte 0xf3, 0x0f, 0xae, 0xc0
        row "xsave", "" ; mov $PLAIN_PAGE, %edi ; .byte 0x0f, 0xae, 0x27
        row "rsm", "" ; rsm
        row "getsec", "" ; .byte 0x0f, 0x37
        row "sysenter without a segment", "" ; sysenter
        row "sysexit without a segment", "" ; sysexitl
        narrow "syscall in 32-bit code", "" ; .byte 0x0f, 0x05
        row "syscall without SCE", "" ; mov $EFER, %ecx ; rdmsr ; and $~1, %eax ; wrmsr ; syscall
        row "sysret without SCE", "" ; mov $EFER, %ecx ; rdmsr ; and $~1, %eax ; wrmsr ; sysretq
        row "sysret to where no code can be", "" ; mov $2, %r11d ; mov $1, %ecx ; shl $63, %rcx ; shr $8, %rcx ; sysretq
        user "sysret in ring 3", "" ; sysretq
        user "sysexit in ring 3", "" ; sysexitl

/* Addresses */
        row "load, not canonical", "" ; mov $1, %eax ; shl $63, %rax ; mov (%rax), %ecx
        row "store, not canonical", "" ; mov $1, %eax ; shl $47, %rax ; mov %ecx, (%rax)
        row "load by rbp, not canonical", "" ; mov $1, %ebp ; shl $47, %rbp ; mov (%rbp), %ecx
        row "push, not canonical", "" ; mov $1, %eax ; shl $50, %rax ; mov %rax, %rsp ; push %rax
        row "pop, not canonical", "" ; mov $1, %eax ; shl $50, %rax ; mov %rax, %rsp ; pop %rax
        row "load across the end of the lower half", "" ; mov $1, %eax ; shl $47, %rax ; mov -2(%rax), %ecx
        row "load by gs, not canonical", "" ; mov $1, %eax ; shl $47, %rax ; mov %gs:(%rax), %ecx
        row "invlpg, not canonical", "" ; mov $1, %eax ; shl $47, %rax ; invlpg (%rax)
        row "prefetch, not canonical", "" ; mov $1, %eax ; shl $47, %rax ; prefetcht0 (%rax)
        row "load of an absent page", "" ; mov ABSENT_PAGE + 0x123, %eax
        row "store to an absent page", "" ; mov %eax, ABSENT_PAGE + 0x123
        row "fetch of an absent page", "" ; mov $ABSENT_PAGE + 0x123, %eax ; jmp *%rax
        row "add to an absent page", "" ; add %eax, ABSENT_PAGE
        row "test of an absent page", "" ; test %eax, ABSENT_PAGE
        row "cmpxchg of an absent page", "" ; cmpxchg %ecx, ABSENT_PAGE
        row "load across into an absent page", "" ; mov ABSENT_PAGE - 2, %eax
        row "store across into an absent page", "" ; mov %rax, ABSENT_PAGE - 1
        row "push to an absent page", "" ; mov $ABSENT_PAGE + 16, %esp ; push %rax
        row "store to a page for reading, ring 0", "" ; mov %eax, READ_ONLY_PAGE
        row "the same without CR0.WP", "" ; mov %cr0, %rcx ; and $~0x10000, %ecx ; mov %rcx, %cr0 ; mov %eax, READ_ONLY_PAGE
        row "load of a page for reading", "" ; mov READ_ONLY_PAGE, %eax
        user "load of a page of ring 0", "" ; mov KERNEL_PAGE, %eax
        user "store to a page of ring 0", "" ; mov %eax, KERNEL_PAGE
        user "fetch of a page of ring 0", "" ; mov $KERNEL_PAGE, %eax ; jmp *%rax
        user "store to a page for reading, ring 3", "" ; mov %eax, READ_ONLY_PAGE
        user "load of an absent page, ring 3", "" ; mov ABSENT_PAGE, %eax
        row "fetch of a page without the right", "" ; mov $NO_EXECUTE_PAGE, %eax ; jmp *%rax
        user "fetch of a page without the right, ring 3", "" ; mov $NO_EXECUTE_PAGE, %eax ; jmp *%rax
        row "load of a page without the right to fetch", "" ; mov NO_EXECUTE_PAGE, %eax
        row "load by an entry with a reserved bit", "" ; mov RESERVED_BIT_PAGE, %eax
        user "store by an entry with a reserved bit", "" ; mov %eax, RESERVED_BIT_PAGE
        row "rep movs into an absent page", "cSD" ; mov $PLAIN_PAGE, %esi ; mov $ABSENT_PAGE - 8, %edi ; mov $16, %ecx ; rep movsb
        row "rep stos into a page for reading", "cD" ; mov $READ_ONLY_PAGE - 4, %edi ; mov $16, %ecx ; rep stosb
        row "movaps, not aligned", "" ; mov $PLAIN_PAGE + 8, %edi ; movaps (%rdi), %xmm0
        row "movups, not aligned", "" ; mov $PLAIN_PAGE + 8, %edi ; movups (%rdi), %xmm0
        row "cmpxchg16b, not aligned", "" ; mov $PLAIN_PAGE + 8, %edi ; cmpxchg16b (%rdi)
        row "cmpxchg16b, aligned", "" ; mov $PLAIN_PAGE, %edi ; cmpxchg16b (%rdi)
        row "fxsave, not aligned", "" ; mov $PLAIN_PAGE + 8, %edi ; fxsave (%rdi)
        row_with USER_CS64, AC, "AC without CR0.AM", "" ; mov PLAIN_PAGE + 1, %eax

/* Segments */
        row "null to ds", "a" ; xor %eax, %eax ; mov %eax, %ds ; mov %ds, %eax
        row "null to ss in ring 0", "a" ; xor %eax, %eax ; mov %eax, %ss ; mov %ss, %eax
        user "null to ss in ring 3", "" ; xor %eax, %eax ; mov %eax, %ss
        narrow "null to ss in 32-bit code", "" ; xor %eax, %eax ; mov %eax, %ss
        row "ds past the table", "" ; mov $OUTSIDE, %eax ; mov %eax, %ds
        row "ds of an absent segment", "" ; mov $ABSENT_DATA, %eax ; mov %eax, %ds
        row "ss of an absent segment", "" ; mov $ABSENT_DATA, %eax ; mov %eax, %ss
        row "ss of a segment that cannot be written", "" ; mov $READ_ONLY, %eax ; mov %eax, %ss
        row "ss with another RPL", "" ; mov $DS0 + 3, %eax ; mov %eax, %ss
        row "ss of ring 3 in ring 0", "" ; mov $USER_DS, %eax ; mov %eax, %ss
        row "ds of code that cannot be read", "" ; mov $EXECUTE_ONLY, %eax ; mov %eax, %ds
        row "ds of code that can be read", "" ; mov $CS32, %eax ; mov %eax, %ds
        row "ds of a TSS", "" ; mov $TSS_SEL, %eax ; mov %eax, %ds
        row "ds of the LDT that is not there", "" ; mov $4, %eax ; mov %eax, %ds
        user "ds of ring 0 in ring 3", "" ; mov $DS0, %eax ; mov %eax, %ds
        user "ss of ring 0 in ring 3", "" ; mov $DS0, %eax ; mov %eax, %ss
        row "fs of an absent segment", "" ; mov $ABSENT_DATA, %eax ; mov %eax, %fs
        narrow "load by a null ds in 32-bit code", "" ; xor %eax, %eax ; mov %eax, %ds ; mov PLAIN_PAGE, %eax
        row "load by a null ds in 64-bit code", "" ; xor %eax, %eax ; mov %eax, %ds ; mov PLAIN_PAGE, %eax
        row "ltr of a busy TSS", "" ; mov $TSS_SEL, %eax ; ltr %ax
        row "ltr of data", "" ; mov $DS0, %eax ; ltr %ax
        row "ltr past the table", "" ; mov $OUTSIDE, %eax ; ltr %ax
        user "ltr in ring 3", "" ; ltr %ax
        row "lldt of null", "" ; xor %eax, %eax ; lldt %ax
        row "lldt of data", "" ; mov $DS0, %eax ; lldt %ax
        row "lldt of an LDT", "" ; mov $LDT_SEL, %eax ; lldt %ax ; xor %eax, %eax ; lldt %ax
        user "lldt in ring 3", "" ; lldt %ax
        row "str", "a" ; xor %eax, %eax ; str %eax
        row "sldt", "a" ; mov $-1, %eax ; sldt %eax
        user "str in ring 3", "a" ; xor %eax, %eax ; str %eax
        row "lar of code", "a" ; mov $CS64, %ecx ; lar %ecx, %eax
        row "lar past the table", "a" ; mov $OUTSIDE, %ecx ; lar %ecx, %eax
        row "lsl of data", "a" ; mov $DS0, %ecx ; lsl %ecx, %eax
        user "lar of ring 0 in ring 3", "a" ; mov $CS64, %ecx ; lar %ecx, %eax
        row "verr of code that can be read", "a" ; mov $CS32, %eax ; verr %ax ; setz %al ; movzbl %al, %eax
        row "verr of code that cannot be read", "a" ; mov $EXECUTE_ONLY, %eax ; verr %ax ; setz %al ; movzbl %al, %eax
        row "verw of data", "a" ; mov $DS0, %eax ; verw %ax ; setz %al ; movzbl %al, %eax
        row "verw of data that cannot be written", "a" ; mov $READ_ONLY, %eax ; verw %ax ; setz %al ; movzbl %al, %eax

/* Far transfers */
        .macro far_pointer selector, target
        movl    $\target, PLAIN_PAGE
        movw    $\selector, PLAIN_PAGE + 4
        .endm
        row "far jump to null", "" ; far_pointer 0, 1f ; ljmp *PLAIN_PAGE
        row "far jump past the table", "" ; far_pointer OUTSIDE, 1f ; ljmp *PLAIN_PAGE
        row "far jump to data", "" ; far_pointer DS0, 1f ; ljmp *PLAIN_PAGE
        row "far jump to absent code", "" ; far_pointer ABSENT_CODE, 1f ; ljmp *PLAIN_PAGE
        row "far jump to code with L and D", "" ; movw $0x0b0f, PLAIN_PAGE + 0x100 ; far_pointer LONG_AND_BIG, PLAIN_PAGE + 0x100 ; ljmp *PLAIN_PAGE
        row "far jump to ring 3", "" ; far_pointer USER_CS64, 1f ; ljmp *PLAIN_PAGE
        row "far jump to a TSS", "" ; far_pointer TSS_SEL, 1f ; ljmp *PLAIN_PAGE
        row "far call to null", "" ; far_pointer 0, 1f ; lcall *PLAIN_PAGE
        row "far call to absent code", "" ; far_pointer ABSENT_CODE, 1f ; lcall *PLAIN_PAGE
        row "far return to null", "" ; push $0 ; push $1 ; lretq
        row "far return past the table", "" ; push $OUTSIDE ; push $1 ; lretq
        row "far return to data", "" ; push $DS0 ; push $1 ; lretq
        user "far return to ring 0", "" ; push $CS64 ; push $1 ; lretq
        row "iret to null", "" ; push $DS0 ; push %rsp ; push $2 ; push $0 ; push $1 ; iretq
        row "iret to absent code", "" ; push $DS0 ; push %rsp ; push $2 ; push $ABSENT_CODE ; push $1 ; iretq
        row "iret to data", "" ; push $DS0 ; push %rsp ; push $2 ; push $DS0 ; push $1 ; iretq
        row "iret to ring 3 with ss of ring 0", "" ; push $DS0 ; push %rsp ; push $2 ; push $USER_CS64 ; push $1 ; iretq
        row "iret to ring 3 with a null ss", "" ; push $0 ; push %rsp ; push $2 ; push $USER_CS64 ; push $1 ; iretq
        row "iret to ring 3 with an absent ss", "" ; push $ABSENT_DATA + 3 ; push %rsp ; push $2 ; push $USER_CS64 ; push $1 ; iretq
        user "iret to ring 0 from ring 3", "" ; push $DS0 ; push %rsp ; push $2 ; push $CS64 ; push $1 ; iretq
        row_with CS64, NT, "iret with NT in long mode", "" ; iretq
        row "iret to where no code can be", "" ; mov %rsp, %rax ; push $DS0 ; push %rax ; push $2 ; push $CS64 ; mov $1, %ecx ; shl $47, %rcx ; push %rcx ; iretq

/* Privileged instructions in ring 3 */
        user "hlt in ring 3", "" ; hlt
        user "cli in ring 3", "" ; cli
        user "sti in ring 3", "" ; sti
        user "in in ring 3", "" ; in $0x80, %al
        user "out in ring 3", "" ; out %al, $0x80
        user "ins in ring 3", "" ; mov $PLAIN_PAGE, %edi ; insb
        user "rdmsr in ring 3", "" ; rdmsr
        user "wrmsr in ring 3", "" ; wrmsr
        user "rdpmc in ring 3", "" ; xor %ecx, %ecx ; rdpmc
        user "rdtsc in ring 3", "" ; rdtsc
        user "lgdt in ring 3", "" ; lgdt PLAIN_PAGE
        user "lidt in ring 3", "" ; lidt PLAIN_PAGE
        user "sgdt in ring 3", "" ; sgdt PLAIN_PAGE
        user "smsw in ring 3", "" ; smsw %eax
        user "lmsw in ring 3", "" ; lmsw %ax
        user "clts in ring 3", "" ; clts
        user "invlpg in ring 3", "" ; invlpg PLAIN_PAGE
        user "invd in ring 3", "" ; invd
        user "wbinvd in ring 3", "" ; wbinvd
        user "mov from cr0 in ring 3", "" ; mov %cr0, %rax
        user "mov to cr3 in ring 3", "" ; mov %rax, %cr3
        user "mov from dr7 in ring 3", "" ; mov %dr7, %rax
        user "mov to dr0 in ring 3", "" ; mov %rax, %dr0
        user "mov from cr8 in ring 3", "" ; mov %cr8, %rax
        user "swapgs in ring 3", "" ; swapgs
        user "popf in ring 3 leaves IF", "f" ; pushf ; orl $0x3200, (%rsp) ; popf
        row "popf in ring 0 takes IOPL", "f" ; pushf ; orl $0x3000, (%rsp) ; popf
        row "wbinvd in ring 0", "" ; wbinvd
        row "rdpmc in ring 0", "" ; xor %ecx, %ecx ; rdpmc
        row "cpuid in ring 0 clears nothing above", "ab" ; xor %ebx, %ebx ; not %rbx ; mov $0x80000008, %eax ; cpuid

/* Control registers */
        row "cr0 with NW without CD", "" ; mov %cr0, %rax ; or $0x20000000, %eax ; and $~0x40000000, %eax ; mov %rax, %cr0
        row "cr0 with bit 32", "" ; mov %cr0, %rax ; bts $32, %rax ; mov %rax, %cr0
        row "cr0 with a reserved bit below 32", "" ; mov %cr0, %rax ; bts $10, %rax ; mov %rax, %cr0
        row "cr0 with ET clear", "a" ; mov %cr0, %rax ; and $~0x10, %eax ; mov %rax, %cr0 ; mov %cr0, %rax
        row "cr4 with PGE and back", "" ; mov %cr4, %rax ; bts $7, %rax ; mov %rax, %cr4
        row "cr1", "" ; .byte 0x0f, 0x20, 0xc8
        row "cr5", "" ; .byte 0x0f, 0x20, 0xe8
        row "cr8", "a" ; mov %cr8, %rax
        row "cr8 of 15", "a" ; mov $15, %eax ; mov %rax, %cr8 ; mov %cr8, %rax ; xor %ecx, %ecx ; mov %rcx, %cr8
        row "cr8 of 16", "" ; mov $16, %eax ; mov %rax, %cr8
        row "lmsw cannot clear PE", "a" ; mov %cr0, %rax ; and $~1, %eax ; lmsw %ax ; mov %cr0, %rax ; and $1, %eax
        row "smsw of 64 bits", "a" ; smsw %rax ; and $0xffff, %eax
        row "efer with a reserved bit", "" ; mov $EFER, %ecx ; rdmsr ; bts $1, %eax ; wrmsr
        row "efer with SVME", "" ; mov $EFER, %ecx ; rdmsr ; bts $12, %eax ; wrmsr
        row "efer without LME while paging", "" ; mov $EFER, %ecx ; rdmsr ; btr $8, %eax ; wrmsr
        row "efer without LMA", "a" ; mov $EFER, %ecx ; rdmsr ; btr $10, %eax ; wrmsr ; rdmsr
        row "efer with upper bits", "" ; mov $EFER, %ecx ; rdmsr ; mov $1, %edx ; wrmsr
        row "efer without NXE makes bit 63 reserved", "" ; mov $EFER, %ecx ; rdmsr ; btr $11, %eax ; wrmsr ; mov NO_EXECUTE_PAGE, %eax

/* Debug registers */
        row "dr6 at first", "a" ; mov %dr6, %rax
        row "dr7 at first", "a" ; mov %dr7, %rax
        row "dr4 is dr6", "a" ; mov %dr4, %rax
        row "dr5 is dr7", "a" ; mov %dr5, %rax
        row "dr4 with CR4.DE", "" ; mov %cr4, %rax ; or $8, %eax ; mov %rax, %cr4 ; mov %dr4, %rax
        row "dr7 with upper bits", "" ; mov $1, %eax ; shl $32, %rax ; mov %rax, %dr7
        row "dr6 with upper bits", "" ; mov $1, %eax ; shl $32, %rax ; mov %rax, %dr6
        row "dr7 keeps bit 10", "a" ; xor %eax, %eax ; mov %rax, %dr7 ; mov %dr7, %rax
        row "dr6 keeps its ones", "a" ; xor %eax, %eax ; mov %rax, %dr6 ; mov %dr6, %rax
        row "dr7 with GD", "" ; mov $0x2400, %eax ; mov %rax, %dr7 ; mov %dr0, %rax
        row "dr0 breaks on execution", "" ; mov $4f, %eax ; mov %rax, %dr0 ; mov $0x401, %eax ; mov %rax, %dr7 ; 4: nop
        row "dr0 breaks on a store", "" ; mov $PLAIN_PAGE, %eax ; mov %rax, %dr0 ; mov $0xd0401, %eax ; mov %rax, %dr7 ; mov %ecx, PLAIN_PAGE ; nop
        row "dr0 for stores lets loads pass", "" ; mov $PLAIN_PAGE, %eax ; mov %rax, %dr0 ; mov $0xd0401, %eax ; mov %rax, %dr7 ; mov PLAIN_PAGE, %ecx ; nop
        row "dr0 breaks on a load", "" ; mov $PLAIN_PAGE, %eax ; mov %rax, %dr0 ; mov $0xf0401, %eax ; mov %rax, %dr7 ; mov PLAIN_PAGE, %ecx ; nop
        row "dr0 beside the store", "" ; mov $PLAIN_PAGE, %eax ; mov %rax, %dr0 ; mov $0xd0401, %eax ; mov %rax, %dr7 ; mov %ecx, PLAIN_PAGE + 4 ; nop

/* FPU and SSE */
        row "x87 with TS", "" ; mov %cr0, %rax ; or $8, %eax ; mov %rax, %cr0 ; fnop
        row "x87 with EM", "" ; mov %cr0, %rax ; or $4, %eax ; mov %rax, %cr0 ; fnop
        row "fwait with TS and MP", "" ; mov %cr0, %rax ; or $10, %eax ; mov %rax, %cr0 ; fwait
        row "fwait with TS alone", "" ; mov %cr0, %rax ; or $8, %eax ; and $~2, %eax ; mov %rax, %cr0 ; fwait
        row "SSE with TS", "" ; mov %cr0, %rax ; or $8, %eax ; mov %rax, %cr0 ; xorps %xmm0, %xmm0
        row "SSE with EM", "" ; mov %cr0, %rax ; or $4, %eax ; mov %rax, %cr0 ; xorps %xmm0, %xmm0
        row "MMX with EM", "" ; mov %cr0, %rax ; or $4, %eax ; mov %rax, %cr0 ; pxor %mm0, %mm0
        row "SSE without OSFXSR", "" ; mov %cr4, %rax ; and $~0x200, %eax ; mov %rax, %cr4 ; xorps %xmm0, %xmm0
        row "x87 division by zero, masked", "a" ; fninit ; fld1 ; fldz ; fdivrp ; fwait ; fnstsw %ax ; movzwl %ax, %eax
        row "x87 division by zero, unmasked, with NE", "" ; mov %cr0, %rax ; or $0x20, %eax ; mov %rax, %cr0 ; fninit ; push $0x37b ; fldcw (%rsp) ; fld1 ; fldz ; fdivrp ; fwait
        row "ldmxcsr with a reserved bit", "" ; movl $0x10000, PLAIN_PAGE ; ldmxcsr PLAIN_PAGE

/* 32-bit code in long mode */
        narrow "inc of one byte in 32-bit code", "a" ; .byte 0x40
        narrow "32-bit code cannot name r8", "" ; .byte 0x41, 0x90
        narrow "ud2 in 32-bit code", "" ; ud2
        narrow "absent page in 32-bit code", "" ; mov ABSENT_PAGE, %eax
        narrow_user "ring 3 in 32-bit code", "" ; ud2
        narrow_user "hlt in ring 3 in 32-bit code", "" ; hlt
        narrow_user "int without the right in 32-bit code", "" ; int $0x21
        narrow "pusha and popa", "a" ; pusha ; popa
        narrow "far jump from 32-bit to 64-bit code", "" ; ljmp $CS64, $4f ; 4: .byte 0x48, 0x90
        narrow "push of a segment register", "a" ; push %ds ; pop %eax
        narrow "efer without LME while paging, in 32-bit code", "" ; mov $EFER, %ecx ; rdmsr ; btr $8, %eax ; wrmsr

#ifdef ALONE
/* Rows at which QEMU 7.2 ends, hangs or enters real mode. */
        row "ltr of null", "" ; xor %eax, %eax ; ltr %ax
        row "cr0 with PG without PE", "" ; mov %cr0, %rax ; and $~1, %eax ; mov %rax, %cr0
        row "cr0 without PG in 64-bit code", "" ; mov %cr0, %rax ; and $0x7fffffff, %eax ; mov %rax, %cr0
        row "cr4 without PAE in long mode", "" ; mov %cr4, %rax ; and $~0x20, %eax ; mov %rax, %cr4
        row "cr4 with bit 32", "" ; mov %cr4, %rax ; bts $32, %rax ; mov %rax, %cr4
        row "cr4 with SMEP", "" ; mov %cr4, %rax ; bts $20, %rax ; mov %rax, %cr4
        row "cr4 with OSXSAVE", "" ; mov %cr4, %rax ; bts $18, %rax ; mov %rax, %cr4
        row "cr4 with PCIDE", "" ; mov %cr4, %rax ; bts $17, %rax ; mov %rax, %cr4
        row "cr4 with FSGSBASE", "" ; mov %cr4, %rax ; bts $16, %rax ; mov %rax, %cr4
        row "cr4 with VMXE", "" ; mov %cr4, %rax ; bts $13, %rax ; mov %rax, %cr4
        row "cr4 with a reserved bit", "" ; mov %cr4, %rax ; bts $15, %rax ; mov %rax, %cr4
        row "cr3 with bits above the address width", "" ; mov %cr3, %rax ; bts $52, %rax ; mov %rax, %cr3
        row "cr3 with bit 40", "" ; mov %cr3, %rax ; bts $40, %rax ; bts $63, %rax ; mov %rax, %cr3
        narrow "cr4 without PAE, in 32-bit code", "" ; mov %cr4, %eax ; and $~0x20, %eax ; mov %eax, %cr4
#endif
        int     $0x30
        .section .note.GNU-stack, "", @progbits
