/* Runs the rows and prints the result of each: `name: #GP(0000) +2` is exception GP with error code 0, two bytes into the
 * row's code. Then the registers that the row shows. */
#include "kernel.h"
#include "rows.h"

void more_rows(void);

static const char *const names[] = {"DE", "DB", "NMI", "BP", "OF", "BR", "UD", "NM", "DF", "9",  "TS",
                                    "NP", "SS", "GP",  "PF", "15", "MF", "AC", "MC", "XM", "20", "21"};

#ifdef __x86_64__
extern uint64_t pages[], pml4[];
#define PRESENT 1ull
#define WRITABLE 2ull
#define USER 4ull
#define NO_EXECUTE (1ull << 63)
static void set_up_pages(void)
{
    pages[ABSENT_PAGE >> 12] = 0;
    pages[READ_ONLY_PAGE >> 12] = READ_ONLY_PAGE | PRESENT | USER;
    pages[KERNEL_PAGE >> 12] = KERNEL_PAGE | PRESENT | WRITABLE;
    pages[NO_EXECUTE_PAGE >> 12] = NO_EXECUTE_PAGE | PRESENT | WRITABLE | USER | NO_EXECUTE;
    /* Above the widest physical address. */
    pages[RESERVED_BIT_PAGE >> 12] = RESERVED_BIT_PAGE | PRESENT | WRITABLE | USER | 1ull << 51;
}
#define CR0 0x80010013ul
#define CR4 0x620ul
#else
static uint32_t directory[1024] __attribute__((aligned(4096))), pages[1024] __attribute__((aligned(4096)));
#define PRESENT 1u
#define WRITABLE 2u
#define USER 4u
static void set_up_pages(void)
{
    for (unsigned n = 0; n < 1024; n++) {
        pages[n] = n << 12 | PRESENT | WRITABLE | USER;
        directory[n] = n << 22 | 0x80 | PRESENT | WRITABLE | USER;
    }
    directory[0] = (uint32_t)pages | PRESENT | WRITABLE | USER;
    pages[ABSENT_PAGE >> 12] = 0;
    pages[READ_ONLY_PAGE >> 12] = READ_ONLY_PAGE | PRESENT | USER;
    pages[KERNEL_PAGE >> 12] = KERNEL_PAGE | PRESENT | WRITABLE;
    __asm__ volatile("mov %0, %%cr4; mov %1, %%cr3" : : "r"(0x610), "r"(directory) : "memory");
}
#define CR0 0x80010013ul
#define CR4 0x610ul
#endif

/* What a row may have changed. */
static void restore(void)
{
    word zero = 0;
#ifdef __x86_64__
    wrmsr(0xc0000080, 0xd01);
    wrmsr(0x174, 0);
    wrmsr(0xc0000081, 0);
    wrmsr(0xc0000082, 0);
    wrmsr(0xc0000084, 0);
    __asm__ volatile("mov %0, %%cr3" : : "r"(pml4) : "memory");
#endif
    __asm__ volatile("mov %0, %%dr7; mov %0, %%dr6" : : "r"(zero));
    __asm__ volatile("mov %0, %%cr0; mov %1, %%cr4" : : "r"(CR0), "r"(CR4) : "memory");
    __asm__ volatile("fninit");
    __asm__ volatile("mov %w0, %%fs; mov %w0, %%gs" : : "r"(DS0));
}

static void show(const struct frame *f, char what)
{
    word value = what == 'a'   ? f->ax
                 : what == 'b' ? f->bx
                 : what == 'c' ? f->cx
                 : what == 'd' ? f->dx
                 : what == 'S' ? f->si
                 : what == 'D' ? f->di
                               : f->flags;
    print(" %c=%lx", what, value);
}

static void report(const struct row *row, const struct frame *f)
{
    word dr6, cr2;
    __asm__ volatile("mov %%dr6, %0; mov %%cr2, %1" : "=r"(dr6), "=r"(cr2));
    word offset = f->ip - (word)row->code;
    print("%s: ", row->name);
    if (f->vector == 0x30) {
        print("done");
    } else if (f->vector < sizeof(names) / sizeof(*names)) {
        print("#%s", names[f->vector]);
        if (has_error_code(f->vector))
            print("(%04lx)", f->error);
        if (offset < 128)
            print(" +%lx", offset);
        else
            print(" at %lx", f->ip);
        if (f->vector == 14)
            print(" cr2=%lx", cr2);
        if (f->vector == 1)
            print(" dr6=%lx", dr6 & 0xffff);
    } else {
        print("vector %lx", f->vector);
    }
    for (const char *what = row->show; *what; what++)
        show(f, *what);
    put('\n');
}

int main(void)
{
    set_up_traps();
    set_up_pages();
    for (const struct row *row = rows; row < rows_end; row++) {
        restore();
        report(row, run(row->code, row->cs, row->flags));
    }
    restore();
    more_rows();
    print("rows: end\n");
    return 0x10;
}
