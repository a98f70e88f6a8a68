/* The descriptor tables, and what happens at a trap. */
#include "kernel.h"

extern const word entries[256];
extern uint64_t gdt[];
extern char trap_stack_top[], ist_stack_top[];

struct frame trapped;
/* How often each interrupt of the devices has come; those are counted and returned from. */
volatile unsigned interrupts[256];
/* Vectors from here on are interrupts of devices. */
#define FIRST_INTERRUPT 0x40

static uint64_t idt[512];
static uint32_t tss[32];

int has_error_code(unsigned vector)
{
    return vector == 8 || vector == 17 || (vector >= 10 && vector <= 14);
}

/* Called by traps.S: whether run( ) is to return. */
long interrupted(struct frame *at)
{
    if (at->vector >= FIRST_INTERRUPT) {
        interrupts[at->vector]++;
        return 0;
    }
    trapped = *at;
    return 1;
}

static void gate(unsigned vector, unsigned attributes)
{
    word at = entries[vector];
    uint64_t low = (at & 0xffff) | (uint64_t)attributes << 32 | ((uint64_t)at & 0xffff0000) << 32;
#ifdef __x86_64__
    idt[2 * vector] = low | CS64 << 16;
    idt[2 * vector + 1] = at >> 32;
#else
    idt[vector] = low | CS32 << 16;
#endif
}

void set_up_traps(void)
{
    struct {
        uint16_t limit;
        word base;
    } __attribute__((packed)) pointer = {sizeof(idt) - 1, (word)idt};
    /* In long mode exceptions have a stack of their own, since some of them come from a bad stack. */
    for (unsigned vector = 0; vector < 256; vector++)
        gate(vector, sizeof(word) == 8 && vector < FIRST_INTERRUPT ? 0x8e01 : 0x8e00);
    /* Where ring 3 may go. */
    unsigned user = sizeof(word) == 8 ? 0xee01 : 0xee00;
    gate(0x30, user);
    gate(3, user);
    gate(4, user);
    /* A gate that is not present. */
    gate(0x31, 0x6e00);
    word base = (word)tss;
    uint32_t limit = sizeof(tss) - 1;
    gdt[TSS_SEL / 8] = limit | (base & 0xffffff) << 16 | 0x89ull << 40 | (uint64_t)(base >> 24 & 0xff) << 56;
#ifdef __x86_64__
    gdt[TSS_SEL / 8 + 1] = base >> 32;
    tss[1] = (uint32_t)(word)trap_stack_top;
    tss[9] = (uint32_t)(word)ist_stack_top;
#else
    tss[1] = (uint32_t)trap_stack_top;
    tss[2] = DS0;
#endif
    /* No map of ports. */
    tss[25] = sizeof(tss) << 16;
    __asm__ volatile("lidt %0; ltr %w1" : : "m"(pointer), "r"(TSS_SEL) : "memory");
}
