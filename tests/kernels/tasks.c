/* Hardware task switches, with paging on: by CALL, JMP, task gates, interrupts, exceptions and IRET. Each prints what the new task
 * finds, and what is left of the old one. */
#include "kernel.h"

#define CR3_AT 7
#define EIP_AT 8
#define FLAGS_AT 9
#define SP_AT 14
#define ES_AT 18
#define CS_AT 19
#define SS_AT 20
#define DS_AT 21
#define GS_AT 23
#define LDT_AT 24
/* Selectors. */
#define MAIN 0x90
#define OTHER 0x98
#define GATE 0xa0
#define ABSENT 0xa8
#define SHORT 0xb0
#define ABSENT_GATE 0xb8
#define EMPTY_GATE 0xc0
#define SMALL_CODE 0xd0
#define ABSENT_TASK_CODE 0xd8
#define HANDLERS 0xe0

extern uint32_t noted_flags, noted_word, noted_cr3, noted_cr0, noted_tr, noted_ldt, noted_dr7, noted_sp, noted_top, noted_vector,
    noted_error, noted_ip, noted_cs, pops, way;
extern uint32_t *saved_ip;
extern char skip_task[], other_task[], user_task[], after_call[], after_int[], after_fault[], faulting[], fault10[], fault11[], fault12[],
    fault13[], from_user[], debugged[];
int call_task(unsigned selector), jump_task(unsigned selector), int_task(void), fault_task(void), return_task(void);

static uint64_t table[32] __attribute__((aligned(16)));
static uint32_t directories[2][1024] __attribute__((aligned(4096))), pages[2][1024] __attribute__((aligned(4096))),
    words[2][1024] __attribute__((aligned(4096)));
static uint32_t main_task[32], other[32], handlers[4][32];
static struct {
    uint16_t limit;
    uint32_t base;
} __attribute__((packed)) gdtr, idtr;

static uint64_t descriptor(uint32_t base, uint32_t limit, unsigned type)
{
    return (limit & 0xffff) | (uint64_t)(base & 0xffffff) << 16 | (uint64_t)type << 40 | (uint64_t)(limit >> 16) << 48 |
           (uint64_t)(base >> 24) << 56;
}

static uint64_t task_gate(unsigned selector, unsigned attributes) { return (uint64_t)selector << 16 | (uint64_t)attributes << 40; }

static void set_gate(unsigned vector, uint64_t gate) { ((uint64_t *)idtr.base)[vector] = gate; }

static void set_code_gate(unsigned vector, const char *at, unsigned attributes)
{
    uint32_t address = (uint32_t)at;
    set_gate(vector, (address & 0xffff) | CS32 << 16 | (uint64_t)attributes << 40 | (uint64_t)(address >> 16) << 48);
}

/* Both tasks as at first; the other one begins anew. */
static void begin(void)
{
    uint32_t flags;
    __asm__ volatile("pushf; pop %0" : "=r"(flags));
    __asm__ volatile("push %0; popf" : : "r"(flags & ~0x4000u));
    __asm__ volatile("mov %0, %%cr3" : : "r"(directories[0]) : "memory");
    table[MAIN / 8] = descriptor((uint32_t)main_task, 0x67, 0x89);
    table[OTHER / 8] = descriptor((uint32_t)other, 0x67, 0x89);
    __asm__ volatile("ltr %w0" : : "r"(MAIN));
    for (unsigned n = 0; n < 32; n++)
        main_task[n] = other[n] = 0;
    for (unsigned n = 0; n < 4; n++) {
        static const char *const entries[] = {fault10, fault11, fault12, fault13};
        table[HANDLERS / 8 + n] = descriptor((uint32_t)handlers[n], 0x67, 0x89);
        for (unsigned at = ES_AT; at <= GS_AT; at++)
            handlers[n][at] = DS0;
        handlers[n][CS_AT] = CS32;
        handlers[n][CR3_AT] = (uint32_t)directories[0];
        handlers[n][EIP_AT] = (uint32_t)entries[n];
        handlers[n][FLAGS_AT] = 2;
        handlers[n][SP_AT] = 0x8800;
        handlers[n][0] = 0;
        set_gate(10 + n, task_gate(HANDLERS + 8 * n, 0x85));
    }
    main_task[1] = 0x8000;
    main_task[2] = DS0;
    main_task[CR3_AT] = (uint32_t)directories[0];
    other[1] = 0x7000;
    other[2] = DS0;
    other[CR3_AT] = (uint32_t)directories[1];
    other[EIP_AT] = (uint32_t)other_task;
    other[FLAGS_AT] = 2;
    other[SP_AT] = 0x9000;
    for (unsigned n = ES_AT; n <= GS_AT; n++)
        other[n] = DS0;
    other[CS_AT] = CS32;
    other[25] = 0x68 << 16;
    noted_flags = noted_word = noted_tr = noted_cr3 = noted_vector = pops = way = 0;
    *(volatile uint32_t *)0x9000 = 0x600df00d;
}

static unsigned number(uint32_t cr3)
{
    return cr3 == (uint32_t)directories[0] ? 0 : cr3 == (uint32_t)directories[1] ? 1 : 2;
}

static unsigned type(unsigned selector) { return table[selector / 8] >> 40 & 0xff; }

static void show(const char *name, int failed)
{
    uint32_t cr3, cr0, flags;
    __asm__ volatile("mov %%cr3, %0; mov %%cr0, %1; pushf; pop %2" : "=r"(cr3), "=r"(cr0), "=r"(flags));
    print("%s: failed %u\n", name, (unsigned)failed);
    print("  there: word %x, space %u, ts %u, tr %x, ldt %x, flags %x, dr7 %x, sp %x, top %x\n", noted_word, number(noted_cr3),
          noted_cr0 >> 3 & 1, noted_tr, noted_ldt, noted_flags & 0x7700, noted_dr7 & 0xff, noted_sp, noted_top);
    print("  here: word %x, space %u, ts %u, flags %x, types %x %x, link %x\n", *(volatile uint32_t *)0x400000, number(cr3),
          cr0 >> 3 & 1, flags & 0x7700, type(MAIN), type(OTHER), other[0]);
    print("  saved: at %x, flags %x, sp %x, cs %x, ss %x, other's flags %x\n",
          main_task[EIP_AT] == (uint32_t)after_call    ? 1
          : main_task[EIP_AT] == (uint32_t)after_int   ? 2
          : main_task[EIP_AT] == (uint32_t)after_fault ? 3
          : main_task[EIP_AT] == (uint32_t)faulting    ? 4
                                                       : 0,
          main_task[FLAGS_AT] & 0xf700, main_task[SP_AT] != 0, main_task[CS_AT], main_task[SS_AT], other[FLAGS_AT] & 0xf700);
    __asm__ volatile("clts");
}

/* A fault is told to a task of its own, whose link names the task at fault. */
static void show_fault(const char *name, int failed)
{
    unsigned at = noted_vector - 10 < 4 ? handlers[noted_vector - 10][0] : 0;
    print("%s: failed %u, vector %x, error %x, in task %x, at its begin %u, cs %x, sp %x, nt %u, types %x %x\n", name, (unsigned)failed,
          noted_vector, noted_error, at, at == OTHER && other[EIP_AT] == (uint32_t)other_task, other[CS_AT], other[SP_AT],
          other[FLAGS_AT] >> 14 & 1, type(MAIN), type(OTHER));
}

static void show_entry(const char *name, int failed, const char *where)
{
    print("%s: failed %u, vector %x, in task %x, space %u, at its begin %u, cs %x, sp %x, types %x %x\n", name, (unsigned)failed,
          noted_vector, noted_tr, number(noted_cr3), noted_ip == (uint32_t)where, noted_cs, noted_sp, type(MAIN), type(OTHER));
}

/* The other task with one member of its TSS changed. */
static void changed(const char *name, unsigned at, uint32_t value)
{
    begin();
    other[at] = value;
    show_fault(name, call_task(OTHER));
}

static void switches(void)
{
    begin();
    show("call", call_task(OTHER));
    show("call again", call_task(OTHER));
    begin();
    show("call by a gate", call_task(GATE));
    begin();
    way = MAIN;
    show("jump there and back", jump_task(OTHER));
    show("jump once more", jump_task(OTHER));
    begin();
    show("interrupt", int_task());
    begin();
    other[FLAGS_AT] = 0x13002;
    other[LDT_AT] = LDT_SEL;
    __asm__ volatile("mov %0, %%dr7" : : "r"(0x355));
    show("flags, ldt and breakpoints", call_task(OTHER));
    __asm__ volatile("mov %0, %%dr7" : : "r"(0));
    begin();
    other[CR3_AT] = (uint32_t)directories[0];
    show("same space", call_task(OTHER));
    begin();
    pops = 1;
    set_gate(13, task_gate(OTHER, 0x85));
    other[EIP_AT] = (uint32_t)skip_task;
    saved_ip = &main_task[EIP_AT];
    show("exception", fault_task());
    print("  at the fault %u\n", noted_ip == (uint32_t)faulting);
#ifdef ALONE
    /* QEMU saves the flags as they are. */
    print("  resume flag %u\n", main_task[FLAGS_AT] >> 16 & 1);
#endif
}

static void faults(void)
{
    begin();
    show_fault("call the running task", call_task(MAIN));
    begin();
    show_fault("call an absent task", call_task(ABSENT));
    begin();
    show_fault("call a short task", call_task(SHORT));
    begin();
    show_fault("call with a low right", call_task(OTHER | 3));
    begin();
    show_fault("call an absent gate", call_task(ABSENT_GATE));
    begin();
    show_fault("call a gate of nothing", call_task(EMPTY_GATE));
    begin();
    show_fault("jump to the running task", jump_task(MAIN));
    begin();
    show_fault("return to nothing", return_task());
    begin();
    main_task[0] = OTHER;
    show_fault("return to a task that is not busy", return_task());
    begin();
    main_task[0] = ABSENT + 4;
    show_fault("return to a local task", return_task());
    changed("no stack", SS_AT, 0);
    changed("stack of ring 3", SS_AT, USER_DS);
    changed("stack that cannot be written", SS_AT, READ_ONLY);
    changed("absent stack", SS_AT, ABSENT_DATA);
    changed("no code", CS_AT, 0);
    changed("code that is data", CS_AT, DS0);
    changed("code of ring 3 with the right of ring 0", CS_AT, USER_CS32 & ~3);
    changed("absent code", CS_AT, ABSENT_TASK_CODE);
    changed("data that cannot be read", DS_AT, EXECUTE_ONLY);
    changed("absent data", ES_AT, ABSENT_DATA);
    changed("data outside of the table", GS_AT, 0x1000);
    changed("a local ldt", LDT_AT, 4);
    changed("an ldt that is code", LDT_AT, CS32);
    changed("begin behind the code", CS_AT, SMALL_CODE);
    begin();
    other[CS_AT] = USER_CS32;
    for (unsigned n = ES_AT; n <= GS_AT; n++)
        if (n != CS_AT)
            other[n] = USER_DS;
    other[EIP_AT] = (uint32_t)user_task;
    show_entry("ring 3", call_task(OTHER), user_task + 2);
    begin();
    other[CS_AT] = USER_CS32;
    other[SS_AT] = USER_DS;
    show_fault("ring 3 with data of ring 0", call_task(OTHER));
#ifdef ALONE
    /* QEMU does not know this bit. */
    uint32_t dr6;
    __asm__ volatile("mov %0, %%dr6" : : "r"(0));
    begin();
    other[25] |= 1;
    show_entry("a task that asks for a trap", call_task(OTHER), other_task);
    __asm__ volatile("mov %%dr6, %0" : "=r"(dr6));
    print("  dr6 %x\n", dr6 & 0xe00f);
#endif
}

int main(void)
{
    set_up_traps();
    __asm__ volatile("sgdt %0; sidt %1" : "=m"(gdtr), "=m"(idtr));
    for (unsigned n = 0; n <= gdtr.limit / 8; n++)
        table[n] = ((uint64_t *)gdtr.base)[n];
    gdtr.base = (uint32_t)table;
    gdtr.limit = sizeof(table) - 1;
    __asm__ volatile("lgdt %0" : : "m"(gdtr));
    for (unsigned space = 0; space < 2; space++) {
        for (unsigned n = 0; n < 1024; n++)
            directories[space][n] = n << 22 | 0x87;
        directories[space][1] = (uint32_t)pages[space] | 7;
        pages[space][0] = (uint32_t)words[space] | 7;
        words[space][0] = 0xaaaa0000 + space;
    }
    table[GATE / 8] = task_gate(OTHER, 0x85);
    table[ABSENT / 8] = descriptor((uint32_t)other, 0x67, 0x09);
    table[SHORT / 8] = descriptor((uint32_t)other, 0x66, 0x89);
    table[ABSENT_GATE / 8] = task_gate(OTHER, 0x05);
    table[EMPTY_GATE / 8] = task_gate(0x500, 0x85);
    table[SMALL_CODE / 8] = descriptor(0, 0xfff, 0x9b) | 0x40ull << 48;
    table[ABSENT_TASK_CODE / 8] = descriptor(0, 0xfffff, 0x1b) | 0xc0ull << 48;
    set_code_gate(1, debugged, 0x8e);
    set_gate(0x50, task_gate(OTHER, 0x85));
    set_code_gate(0x52, from_user, 0xee);
    __asm__ volatile("mov %0, %%cr3; mov %1, %%cr4; mov %2, %%cr0" : : "r"(directories[0]), "r"(0x10), "r"(0x80010013) : "memory");
    switches();
    faults();
    print("tasks: end\n");
    return 0x10;
}
