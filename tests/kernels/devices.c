/* Rows about the interrupt controllers and the timers of a PC. Those about time print whether it is right, not how much passed. */
#include "kernel.h"

#define APIC 0xfee00000
#define IOAPIC 0xfec00000
#define HPET 0xfed00000
#define PM_TIMER 0x608

extern volatile unsigned interrupts[256];
void cpu_rows(void);
void board_rows(void);
void line_rows(void);

static uint32_t apic(unsigned at) { return read32(APIC + at); }
static void set_apic(unsigned at, uint32_t value) { write32(APIC + at, value); }

static uint32_t ioapic(uint32_t at)
{
    write32(IOAPIC, at);
    return read32(IOAPIC + 0x10);
}

static void set_ioapic(uint32_t at, uint32_t value)
{
    write32(IOAPIC, at);
    write32(IOAPIC + 0x10, value);
}

/* Lets a pending interrupt come. */
static void take(void) { __asm__ volatile("sti; nop; nop; cli" : : : "memory"); }

/* Ticks of the ACPI timer, 3,579,545 a second, in 24 bits. */
static uint32_t pm(void) { return inl(PM_TIMER) & 0xffffff; }
static uint32_t since(uint32_t then) { return (pm() - then) & 0xffffff; }
static void wait(uint32_t ticks)
{
    for (uint32_t then = pm(); since(then) < ticks;)
        ;
}

static void apic_registers(void)
{
    static const struct {
        const char *name;
        unsigned at;
    } vectors[] = {{"timer", 0x320}, {"thermal", 0x330}, {"counters", 0x340}, {"lint0", 0x350}, {"lint1", 0x360}, {"error", 0x370}};
    print("apic id: %x\n", apic(0x20));
    print("apic version: %x\n", apic(0x30) & 0xff);
    print("apic last lvt entry: %x\n", apic(0x30) >> 16 & 0xff);
    set_apic(0xf0, 0xff);
    print("apic svr while disabled: %x\n", apic(0xf0));
    for (unsigned n = 0; n < 6; n++) {
        set_apic(vectors[n].at, 0xfff0ffff & ~0x10000u);
        print("apic lvt %s while disabled: %x\n", vectors[n].name, apic(vectors[n].at) & ~0x1000u);
    }
    set_apic(0xf0, 0x1ff);
    print("apic svr: %x\n", apic(0xf0));
    for (unsigned n = 0; n < 6; n++) {
        set_apic(vectors[n].at, 0x10040);
        print("apic lvt %s masked: %x\n", vectors[n].name, apic(vectors[n].at));
    }
    set_apic(0x80, 0x1ff);
    print("apic tpr of 1ff: %x\n", apic(0x80));
    set_apic(0x80, 0x35);
    print("apic ppr under tpr 35: %x\n", apic(0xa0));
    set_apic(0x80, 0);
    set_apic(0xd0, 0xffffffff);
    print("apic ldr: %x\n", apic(0xd0));
    set_apic(0xe0, 0x0fffffff);
    print("apic dfr: %x\n", apic(0xe0));
    set_apic(0xe0, 0xffffffff);
    set_apic(0x310, 0xffffffff);
    print("apic icr high: %x\n", apic(0x310));
    set_apic(0x310, 0);
    for (unsigned divide = 0; divide < 16; divide++) {
        set_apic(0x3e0, divide);
        print("apic divide %x: %x\n", divide, apic(0x3e0));
    }
    set_apic(0x280, 0);
    set_apic(0x280, 0);
    print("apic esr: %x\n", apic(0x280));
    for (unsigned at = 0x100; at < 0x280; at += 0x80)
        print("apic isr, tmr, irr from %x: %x\n", at, apic(at) | apic(at + 0x40));
}

static void apic_interrupts(void)
{
    set_apic(0x300, 0x40050);
    print("ipi to self waits: %x\n", apic(0x220));
    take();
    print("ipi to self comes: %u\n", interrupts[0x50]);
    print("ipi to self in service: %x\n", apic(0x120));
    print("ppr in service: %x\n", apic(0xa0));
    set_apic(0x300, 0x40048);
    take();
    print("a lower one waits: %u\n", interrupts[0x48]);
    set_apic(0x300, 0x40063);
    take();
    print("a higher one comes: %u\n", interrupts[0x63]);
    set_apic(0xb0, 0);
    print("the highest leaves service first: %x %x\n", apic(0x120), apic(0x130));
    set_apic(0xb0, 0);
    take();
    print("then the lower one comes: %u\n", interrupts[0x48]);
    set_apic(0xb0, 0);
    set_apic(0x80, 0x60);
    set_apic(0x300, 0x40051);
    take();
    print("tpr 60 holds 51 back: %u\n", interrupts[0x51]);
    set_apic(0x80, 0x40);
    take();
    print("tpr 40 lets 51 pass: %u\n", interrupts[0x51]);
    set_apic(0xb0, 0);
    set_apic(0x80, 0);
    set_apic(0x310, 0);
    set_apic(0x300, 0x4052);
    take();
    print("ipi to number 0: %u\n", interrupts[0x52]);
    set_apic(0xb0, 0);
    set_apic(0x310, 0x05000000);
    set_apic(0x300, 0x4053);
    take();
    print("ipi to number 5: %u\n", interrupts[0x53]);
    set_apic(0x300, 0x80053);
    take();
    print("ipi to all: %u\n", interrupts[0x53]);
    set_apic(0xb0, 0);
    set_apic(0x300, 0xc0054);
    take();
    print("ipi to all others: %u\n", interrupts[0x54]);
    set_apic(0x310, 0);
    set_apic(0xd0, 0x04000000);
    set_apic(0x310, 0x04000000);
    set_apic(0x300, 0x4855);
    take();
    print("ipi by logical destination: %u\n", interrupts[0x55]);
    set_apic(0xb0, 0);
    set_apic(0x310, 0x02000000);
    set_apic(0x300, 0x4856);
    take();
    print("ipi to another logical destination: %u\n", interrupts[0x56]);
    set_apic(0x310, 0);
    print("icr low: %x\n", apic(0x300) & ~0x1000u);
#ifdef ALONE
    /* QEMU delivers it, with the error code that a double fault would have. */
    set_apic(0x300, 0x40008);
    set_apic(0x280, 0);
    print("esr after vector 8: %x\n", apic(0x280));
    set_apic(0x280, 0);
#endif
#ifdef __x86_64__
    word value = 5;
    __asm__ volatile("mov %0, %%cr8" : : "r"(value));
    print("tpr after cr8 of 5: %x\n", apic(0x80));
    set_apic(0x80, 0x30);
    __asm__ volatile("mov %%cr8, %0" : "=r"(value));
    print("cr8 after tpr of 30: %lx\n", value);
    set_apic(0x80, 0);
#endif
}

static void apic_timer(void)
{
    set_apic(0x3e0, 0xb);
    set_apic(0x320, 0x10070);
    set_apic(0x380, 0xffffffff);
    uint32_t first = apic(0x390);
    wait(3580);
    uint32_t second = apic(0x390);
    print("apic timer counts down: %u\n", second < first);
    print("apic timer initial count: %x\n", apic(0x380));
    set_apic(0x380, 0);
    print("apic timer stopped: %x\n", apic(0x390));
    set_apic(0x320, 0x70);
    set_apic(0x380, 100000);
    for (int n = 0; n < 100 && !interrupts[0x70]; n++) {
        take();
        wait(3580);
    }
    print("apic timer interrupts once: %u\n", interrupts[0x70]);
    print("apic timer rests at: %x\n", apic(0x390));
    set_apic(0xb0, 0);
    set_apic(0x320, 0x20071);
    set_apic(0x380, 100000);
    for (int n = 0; n < 1000 && interrupts[0x71] < 3; n++) {
        take();
        set_apic(0xb0, 0);
        wait(358);
    }
    print("apic timer goes on: %u\n", interrupts[0x71] >= 3);
    set_apic(0x320, 0x10071);
    set_apic(0x380, 0);
    take();
    set_apic(0xb0, 0);
    take();
    set_apic(0xb0, 0);
}

static void ioapic_rows(void)
{
    print("ioapic version: %x\n", ioapic(1) & 0xff);
    print("ioapic last entry: %u\n", ioapic(1) >> 16 & 0xff);
    print("ioapic select reads back: %x\n", (write32(IOAPIC, 0x1ff), read32(IOAPIC)));
    print("ioapic entry 5 at first: %x %x\n", ioapic(0x1b), ioapic(0x1a));
    set_ioapic(0x1b, 0xffffffff);
    set_ioapic(0x1a, 0xffffffff);
    print("ioapic entry 5 of ones: %x %x\n", ioapic(0x1b), ioapic(0x1a));
    set_ioapic(0x1a, 0x10000);
    set_ioapic(0x1b, 0);
    print("ioapic register past the last: %x\n", ioapic(0x40));
    /* The 8254 by pin 2. */
    set_ioapic(0x15, 0);
    set_ioapic(0x14, 0x72);
    outb(0x43, 0x30);
    outb(0x40, 0);
    outb(0x40, 4);
    for (int n = 0; n < 200 && !interrupts[0x72]; n++) {
        wait(17900);
        take();
    }
    print("the 8254 interrupts by pin 2: %u\n", interrupts[0x72]);
    set_apic(0xb0, 0);
    set_ioapic(0x14, 0x10000);
}

static void pic_rows(void)
{
    outb(0x20, 0x11);
    outb(0x21, 0x80);
    outb(0x21, 4);
    outb(0x21, 1);
    outb(0xa0, 0x11);
    outb(0xa1, 0x88);
    outb(0xa1, 2);
    outb(0xa1, 1);
    outb(0xa1, 0xff);
    outb(0x21, 0xa5);
    print("8259 mask reads back: %x %x\n", inb(0x21), inb(0xa1));
    outb(0x21, 0xff);
    set_apic(0x350, 0x700);
    outb(0x43, 0x30);
    outb(0x40, 0);
    outb(0x40, 4);
    outb(0x20, 0x0a);
    for (int n = 0; n < 200 && !(inb(0x20) & 1); n++)
        wait(17900);
    print("8259 request under its mask: %x\n", inb(0x20) & 1);
    outb(0x21, 0xfe);
    take();
    print("8259 interrupt by lint0: %u\n", interrupts[0x80]);
    outb(0x20, 0x0b);
    print("8259 in service: %x\n", inb(0x20));
    outb(0x20, 0x20);
    outb(0x20, 0x0b);
    print("8259 after the end of interrupt: %x\n", inb(0x20));
    outb(0x21, 0xff);
    set_apic(0x350, 0x10700);
    outb(0x4d0, 0xf8);
    outb(0x4d1, 0xff);
    print("elcr of ones: %x %x\n", inb(0x4d0), inb(0x4d1));
    outb(0x4d0, 0);
    outb(0x4d1, 0);
}

static unsigned latched(void)
{
    outb(0x43, 0);
    unsigned low = inb(0x40);
    return low | inb(0x40) << 8;
}

static void pit_rows(void)
{
    for (unsigned mode = 0; mode < 6; mode++) {
        outb(0x43, 0x30 | mode << 1);
        outb(0x43, 0xe2);
        print("8254 status in mode %u before a count: %x\n", mode, inb(0x40) & 0x7f);
        outb(0x40, 0);
        outb(0x40, 0x80);
        wait(36);
        outb(0x43, 0xe2);
        print("8254 status in mode %u: %x\n", mode, inb(0x40) & 0x7f);
    }
    outb(0x43, 0x34);
    outb(0x40, 0xff);
    outb(0x40, 0xff);
    wait(36);
    unsigned first = latched();
    uint32_t then = pm();
    wait(35795);
    unsigned passed = (first - latched()) & 0xffff;
    uint32_t ticks = since(then);
    /* The ACPI timer has three ticks for one of the 8254. */
    print("8254 and acpi timer agree: %u\n", passed * 3 > ticks - ticks / 20 - 200 && passed * 3 < ticks + ticks / 20 + 200);
    outb(0x61, 0);
    print("port 61 with gate 2 closed: %x\n", inb(0x61) & 3);
    outb(0x43, 0xb0);
    outb(0x42, 0);
    outb(0x42, 4);
    outb(0x61, 1);
    print("counter 2 while it counts: %x\n", inb(0x61) & 0x21);
    wait(17900);
    print("counter 2 at its end: %x\n", inb(0x61) & 0x21);
}

static uint8_t cmos(uint8_t at)
{
    outb(0x70, at);
    return inb(0x71);
}

static void rtc_rows(void)
{
    print("rtc status a: %x\n", cmos(10) & 0x7f);
    print("rtc status b: %x\n", cmos(11));
    cmos(12);
    print("rtc status d: %x\n", cmos(13));
    outb(0x70, 10);
    outb(0x71, 0x2a);
    outb(0x70, 11);
    outb(0x71, 0x42);
    cmos(12);
    uint8_t flags = 0;
    for (int n = 0; n < 200 && !flags; n++) {
        wait(17900);
        flags = cmos(12) & 0xc0;
    }
    print("rtc periodic flag: %x\n", flags);
    outb(0x70, 11);
    outb(0x71, 2);
    outb(0x70, 10);
    outb(0x71, 0x26);
    cmos(12);
    print("rtc flags after a read: %x\n", cmos(12));
    print("cmos base memory: %u KiB\n", cmos(0x15) | cmos(0x16) << 8);
    print("cmos memory above 16 MiB: %u\n", cmos(0x34) | cmos(0x35) << 8);
}

static void tsc_rows(void)
{
    uint32_t low, high, low2, high2;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    wait(3580);
    __asm__ volatile("rdtsc" : "=a"(low2), "=d"(high2));
    print("tsc goes on: %u\n", ((uint64_t)high2 << 32 | low2) > ((uint64_t)high << 32 | low));
    wrmsr(0x10, 0x100000000000ull);
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    print("tsc after a write: %x\n", high);
}

void more_rows(void)
{
    outb(0x21, 0xff);
    outb(0xa1, 0xff);
    cpu_rows();
    apic_registers();
    apic_interrupts();
    apic_timer();
    ioapic_rows();
    pic_rows();
    pit_rows();
    rtc_rows();
    tsc_rows();
    board_rows();
    line_rows();
}
