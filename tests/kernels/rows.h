/* A row of the table: a piece of code that ends in a trap, `int $0x30` at the latest. Also read by the assembler. */

/* The pages that have special rights, and a place in each. */
#define ABSENT_PAGE 0x10000
#define READ_ONLY_PAGE 0x11000
#define KERNEL_PAGE 0x12000
#define NO_EXECUTE_PAGE 0x13000
#define RESERVED_BIT_PAGE 0x14000
#define PLAIN_PAGE 0x15000

#ifdef __ASSEMBLER__
#ifdef __x86_64__
#define NUMBER .quad
#define CODE CS64
#else
#define NUMBER .long
#define CODE CS32
#endif
/* Begins a row: its name, and the registers to show (a b c d S D; f: flags). The code that follows it runs with the code
 * segment `cs` and these flags. Each row ends the one before. */
        .macro row_with cs, flags, name, show
        int     $0x30
        .section .rodata
1:      .asciz  "\name"
2:      .asciz  "\show"
        .text
3:
#ifdef __x86_64__
        .code64
#endif
        .section .rows, "a"
        NUMBER  1b, 2b, 3b, \cs, \flags
        .text
        .endm
        .macro row name, show
        row_with CODE, 2, "\name", "\show"
        .endm
#else
struct row {
    const char *name, *show;
    const void *code;
    word cs, flags;
};
extern const struct row rows[], rows_end[];
#endif
