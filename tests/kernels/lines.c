/* Rows about the interrupt lines of devices. Each step of a table is an access or a pause; its row has what was read, and
 * then how many interrupts came, where the 8259s look for edges, or the level of the line, where they look for levels. */
#include "kernel.h"

#define APIC 0xfee00000
#define IOAPIC 0xfec00000
#define HPET 0xfed00000

extern volatile unsigned interrupts[256];

enum what { READ, WRITE, PAUSE };

/* What is written, how long the pause is, or which bits of what is read are shown: 0 for all. */
struct step {
    const char *name;
    enum what what;
    uint16_t port;
    uint8_t value;
};

static void take(void) { __asm__ volatile("sti; nop; nop; cli" : : : "memory"); }

/* Milliseconds of the ACPI timer, which is looked at seldom: it counts 3,579,545 times a second. */
static void pause(unsigned ms)
{
    for (uint32_t then = inl(0x608); ((inl(0x608) - then) & 0xffffff) < ms * 3580;)
        for (volatile unsigned n = 0; n < 2000; n++)
            ;
}

/* How many interrupts come, each of which is ended. */
static unsigned edges(unsigned irq)
{
    unsigned before = interrupts[0x80 + irq];
    for (unsigned n = 0; n < 4; n++) {
        take();
        outb(0xa0, 0x20);
        outb(0x20, 0x20);
    }
    return interrupts[0x80 + irq] - before;
}

static unsigned level(unsigned irq)
{
    uint16_t port = irq < 8 ? 0x20 : 0xa0;
    outb(port, 0x0a);
    return inb(port) >> (irq & 7) & 1;
}

static void watch_line(unsigned irq, int by_level)
{
    unsigned levels = by_level ? 1u << irq : 0, open = by_level ? 0 : 1u << irq | 4;
    outb(0x21, 0xff);
    outb(0xa1, 0xff);
    outb(0x4d0, levels);
    outb(0x4d1, levels >> 8);
    edges(irq);
    outb(0x21, ~open);
    outb(0xa1, ~open >> 8);
    edges(irq);
}

static void run_steps(const char *device, unsigned irq, int by_level, const struct step *step)
{
    watch_line(irq, by_level);
    for (; step->name; step++) {
        print("%s of %s, %s: ", by_level ? "line" : "interrupts", device, step->name);
        if (step->what == READ)
            print("%x ", inb(step->port) & (step->value ? step->value : 0xff));
        else if (step->what == WRITE)
            outb(step->port, step->value);
        else
            pause(step->value);
        print("%u\n", by_level ? level(irq) : edges(irq));
    }
    watch_line(irq, 0);
}

/* COM2, as COM1 has the rows. */
#define THR 0x2f8
#define RBR 0x2f8
#define IER 0x2f9
#define IIR 0x2fa
#define FCR 0x2fa
#define MCR 0x2fc
#define LSR 0x2fd
#define MSR 0x2fe

static void reset_uart(uint8_t mcr)
{
    outb(IER, 0);
    outb(0x2fb, 0x83);
    outb(0x2f8, 1);
    outb(0x2f9, 0);
    outb(0x2fb, 3);
    outb(FCR, 7);
    outb(FCR, 0);
    outb(MCR, mcr);
    inb(LSR);
    inb(RBR);
    inb(IIR);
    inb(MSR);
}

static const struct step transmit[] = {
    {"enable", WRITE, IER, 2},
    {"enable again", WRITE, IER, 2},
    {"first byte", WRITE, THR, 'a'},
    {"second byte", WRITE, THR, 'b'},
    {"iir", READ, IIR, 0},
    {"iir again", READ, IIR, 0},
    {"lsr", READ, LSR, 0},
    {"third byte", WRITE, THR, 'c'},
    {"disable", WRITE, IER, 0},
    {"fourth byte while disabled", WRITE, THR, 'd'},
    {"iir while disabled", READ, IIR, 0},
    {"enable after a byte", WRITE, IER, 2},
    {"iir for the third time", READ, IIR, 0},
    {"disable and enable, off", WRITE, IER, 0},
    {"disable and enable, on", WRITE, IER, 2},
    {"fifos on", WRITE, FCR, 1},
    {"iir with fifos", READ, IIR, 0},
    {"clear the transmit fifo", WRITE, FCR, 5},
    {"iir after that", READ, IIR, 0},
    {"byte with fifos", WRITE, THR, 'e'},
    {"fifos off", WRITE, FCR, 0},
    {0},
};

static const struct step without_out2[] = {
    {"enable without out2", WRITE, IER, 2},
    {"byte without out2", WRITE, THR, 'a'},
    {"iir without out2", READ, IIR, 0},
    {"out2", WRITE, MCR, 8},
    {0},
};

/* In loop-back, a byte that is sent is received. */
static const struct step receive[] = {
    {"enable reception", WRITE, IER, 1},
    {"byte comes", WRITE, THR, 0x41},
    {"iir of the byte", READ, IIR, 0},
    {"lsr of the byte", READ, LSR, 0},
    {"read the byte", READ, RBR, 0},
    {"iir after the byte", READ, IIR, 0},
    {"next byte comes", WRITE, THR, 0x42},
    {"one more comes", WRITE, THR, 0x43},
    {"lsr of the overrun", READ, LSR, 0},
    {"lsr after the overrun", READ, LSR, 0},
    {"read the last", READ, RBR, 0},
    {"read nothing more", READ, LSR, 0},
    {"enable line status", WRITE, IER, 5},
    {"one comes", WRITE, THR, 0x44},
    {"two comes", WRITE, THR, 0x45},
    {"iir of two", READ, IIR, 0},
    {"lsr of two", READ, LSR, 0},
    {"iir after lsr", READ, IIR, 0},
    {"read two", READ, RBR, 0},
    {"enable both", WRITE, IER, 3},
    {"byte comes and the transmitter is empty", WRITE, THR, 0x46},
    {"iir of both", READ, IIR, 0},
    {"read first", READ, RBR, 0},
    {"iir of the second", READ, IIR, 0},
    {"iir of none", READ, IIR, 0},
    {0},
};

static const struct step fifos[] = {
    {"trigger of 4", WRITE, FCR, 0x47},
    {"enable", WRITE, IER, 1},
    {"one comes", WRITE, THR, 0x41},
    {"iir at first", READ, IIR, 0},
    {"time-out", PAUSE, 0, 50},
    {"iir of the time-out", READ, IIR, 0},
    {"iir does not end it", READ, IIR, 0},
    {"read", READ, RBR, 0},
    {"iir then", READ, IIR, 0},
    {"1 of three comes", WRITE, THR, 0x42},
    {"2 of three comes", WRITE, THR, 0x43},
    {"3 of three comes", WRITE, THR, 0x44},
    {"time-out of three", PAUSE, 0, 50},
    {"read the first of three", READ, RBR, 0},
    {"time-out of two", PAUSE, 0, 50},
    {"iir of two", READ, IIR, 0},
    {"a byte comes in the time-out", WRITE, THR, 0x45},
    {"a byte fills to the trigger", WRITE, THR, 0x46},
    {"iir of four", READ, IIR, 0},
    {"read the first of four", READ, RBR, 0},
    {"iir of the other three", READ, IIR, 0},
    {"time-out of the other three", PAUSE, 0, 50},
    {"clear", WRITE, FCR, 0x43},
    {"iir after clear", READ, IIR, 0},
    {"no time-out after clear", PAUSE, 0, 50},
    {"1 of four comes", WRITE, THR, 0x47},
    {"2 of four comes", WRITE, THR, 0x48},
    {"3 of four comes", WRITE, THR, 0x49},
    {"4 of four comes", WRITE, THR, 0x4a},
    {"iir of the trigger", READ, IIR, 0},
    {"disable", WRITE, IER, 0},
    {"enable again", WRITE, IER, 1},
    {"read 1 of 4", READ, RBR, 0},
    {"read 2 of 4", READ, RBR, 0},
    {"read 3 of 4", READ, RBR, 0},
    {"read 4 of 4", READ, RBR, 0},
    {"no time-out of nothing", PAUSE, 0, 50},
    {"trigger of 1", WRITE, FCR, 0x01},
    {"one for the trigger of 1", WRITE, THR, 0x4b},
    {"iir for the trigger of 1", READ, IIR, 0},
    {"time-out at the trigger", PAUSE, 0, 50},
    {"iir for both", READ, IIR, 0},
    {"read it", READ, RBR, 0},
    {"off", WRITE, FCR, 0},
    {0},
};

static void uart_rows(void)
{
    for (int by_level = 0; by_level < 2; by_level++) {
        reset_uart(8);
        run_steps("sending", 3, by_level, transmit);
        reset_uart(0);
        run_steps("a uart", 3, by_level, without_out2);
        reset_uart(0x18);
        run_steps("receiving", 3, by_level, receive);
        reset_uart(0x18);
        run_steps("the fifo", 3, by_level, fifos);
    }
    reset_uart(8);
}

static const struct step floppy[] = {
    {"reset", WRITE, 0x3f2, 0},
    {"run", WRITE, 0x3f2, 0x0c},
    {"gate off", WRITE, 0x3f2, 0x04},
    {"gate on", WRITE, 0x3f2, 0x0c},
    {"sense interrupt", WRITE, 0x3f5, 8},
    {"its status", READ, 0x3f5, 0},
    {"its cylinder", READ, 0x3f5, 0},
    {"sense the second drive", WRITE, 0x3f5, 8},
    {"second status", READ, 0x3f5, 0},
    {"second cylinder", READ, 0x3f5, 0},
    {"sense the third drive", WRITE, 0x3f5, 8},
    {"third status", READ, 0x3f5, 0},
    {"third cylinder", READ, 0x3f5, 0},
    {"sense the fourth drive", WRITE, 0x3f5, 8},
    {"fourth status", READ, 0x3f5, 0},
    {"fourth cylinder", READ, 0x3f5, 0},
    {"sense nothing", WRITE, 0x3f5, 8},
    {"invalid", READ, 0x3f5, 0},
    {"recalibrate", WRITE, 0x3f5, 7},
    {"drive 0", WRITE, 0x3f5, 0},
    {"time to recalibrate", PAUSE, 0, 50},
    {"sense the end", WRITE, 0x3f5, 8},
    {"status of the end", READ, 0x3f5, 0},
    {"cylinder of the end", READ, 0x3f5, 0},
    {"reset by the rate register", WRITE, 0x3f4, 0x80},
    {"once more while it asks", WRITE, 0x3f4, 0x80},
    {"sense that", WRITE, 0x3f5, 8},
    {"status of that", READ, 0x3f5, 0},
    {"cylinder of that", READ, 0x3f5, 0},
    {"version", WRITE, 0x3f5, 0x10},
    {"the version", READ, 0x3f5, 0},
    {"last reset", WRITE, 0x3f2, 0},
    {"last run", WRITE, 0x3f2, 0x0c},
    {"off while it asks", WRITE, 0x3f2, 0},
    {0},
};

static const struct step keyboard[] = {
    {"write the configuration", WRITE, 0x64, 0x60},
    {"interrupt, disabled mouse", WRITE, 0x60, 0x61},
    {"byte as from the keyboard", WRITE, 0x64, 0xd2},
    {"the byte", WRITE, 0x60, 0x1e},
    {"read the byte", READ, 0x60, 0},
    {"status", READ, 0x64, 0},
    {"identify", WRITE, 0x60, 0xf2},
    {"acknowledgement", READ, 0x60, 0},
    {"first byte", READ, 0x60, 0},
    {"second byte", READ, 0x60, 0},
    {"read once more", READ, 0x60, 0},
    {"read the configuration", WRITE, 0x64, 0x20},
    {"the configuration", READ, 0x60, 0},
    {"no interrupt", WRITE, 0x64, 0x60},
    {"no interrupt, value", WRITE, 0x60, 0x60},
    {"echo without interrupt", WRITE, 0x60, 0xee},
    {"interrupt again", WRITE, 0x64, 0x60},
    {"interrupt again, value", WRITE, 0x60, 0x61},
    {"the echo", READ, 0x60, 0},
    {"self test", WRITE, 0x64, 0xaa},
    {"its result", READ, 0x60, 0},
    {"last configuration", WRITE, 0x64, 0x60},
    {"last value", WRITE, 0x60, 0x61},
    {0},
};

static const struct step mouse[] = {
    {"configuration", WRITE, 0x64, 0x60},
    {"its interrupt", WRITE, 0x60, 0x43},
    {"to the mouse", WRITE, 0x64, 0xd4},
    {"ask its identity", WRITE, 0x60, 0xf2},
    {"acknowledgement", READ, 0x60, 0},
    {"identity", READ, 0x60, 0},
    {"byte as from the mouse", WRITE, 0x64, 0xd3},
    {"the byte", WRITE, 0x60, 0x55},
    {"read the byte", READ, 0x60, 0},
    {"disable", WRITE, 0x64, 0xa7},
    {0},
};

static const struct step rtc[] = {
    {"register b", WRITE, 0x70, 11},
    {"periodic interrupt", WRITE, 0x71, 0xc2},
    {"first", PAUSE, 0, 20},
    {"none before register c is read", PAUSE, 0, 20},
    {"register c", WRITE, 0x70, 12},
    {"read it", READ, 0x71, 0xc0},
    {"second", PAUSE, 0, 20},
    {"read it again", READ, 0x71, 0xc0},
    {"register b again", WRITE, 0x70, 11},
    {"off", WRITE, 0x71, 0x82},
    {"none while off", PAUSE, 0, 20},
    {0},
};

static void set_cmos(uint8_t at, uint8_t value)
{
    outb(0x70, at);
    outb(0x71, value);
}

/* The date stands or goes on; nothing is pending. Its update sets a flag, under QEMU by the host's clock. */
static void reset_clock(uint8_t a, uint8_t b)
{
    set_cmos(10, a);
    set_cmos(11, b);
    outb(0x70, 12);
    inb(0x71);
}

static const struct step timer[] = {
    {"mode 0", WRITE, 0x43, 0x30},
    {"no count yet", PAUSE, 0, 20},
    {"low byte", WRITE, 0x40, 0},
    {"high byte", WRITE, 0x40, 4},
    {"end", PAUSE, 0, 20},
    {"nothing more", PAUSE, 0, 20},
    {"low byte again", WRITE, 0x40, 0},
    {"high byte again", WRITE, 0x40, 4},
    {"end again", PAUSE, 0, 20},
    {"mode 0 again", WRITE, 0x43, 0x30},
    {"nothing without a count", PAUSE, 0, 20},
    {"mode 4", WRITE, 0x43, 0x38},
    {"low byte of mode 4", WRITE, 0x40, 0},
    {"high byte of mode 4", WRITE, 0x40, 4},
    {"strobe", PAUSE, 0, 20},
    {"no second strobe", PAUSE, 0, 20},
    {"mode 1", WRITE, 0x43, 0x32},
    {"low byte of mode 1", WRITE, 0x40, 0},
    {"high byte of mode 1", WRITE, 0x40, 4},
    {"no trigger", PAUSE, 0, 20},
    {"mode 2", WRITE, 0x43, 0x34},
    {"low byte of mode 2", WRITE, 0x40, 0},
    {"high byte of mode 2", WRITE, 0x40, 0x20},
    {"period of mode 2", PAUSE, 0, 20},
    {"next period of mode 2", PAUSE, 0, 20},
    {"mode 0 at last", WRITE, 0x43, 0x30},
    {0},
};

/* A comparator of the HPET by the I/O APIC; `fires` ms from now. */
static void set_pin(unsigned pin, uint32_t entry)
{
    write32(IOAPIC, 0x10 + 2 * pin);
    write32(IOAPIC + 0x10, entry);
}

static void hpet_row(const char *name, unsigned vector)
{
    unsigned before = interrupts[vector];
    take();
    write32(APIC + 0xb0, 0);
    take();
    write32(APIC + 0xb0, 0);
    print("hpet, %s: %x %u\n", name, read32(HPET + 0x20), interrupts[vector] - before);
}

static void arm_hpet(uint32_t config)
{
    write32(HPET + 0x100, config);
    write32(HPET + 0x108, read32(HPET + 0xf0) + 500000);
    write32(HPET + 0x10c, 0);
}

static void hpet_rows(void)
{
    static const char *const names[2][4] = {{"edge", "edge later", "edge, disabled", "edge, enabled again"},
                                            {"level", "level later", "level, disabled", "level, cleared"}};
    write32(HPET + 0x10, 0);
    write32(HPET + 0xf0, 0);
    write32(HPET + 0xf4, 0);
    write32(HPET + 0x20, 7);
    write32(HPET + 0x10, 1);
    for (unsigned by_level = 0; by_level < 2; by_level++) {
        set_pin(2, by_level ? 0x8076 : 0x76);
        arm_hpet(2 << 9 | 4 | by_level << 1);
        pause(20);
        hpet_row(names[by_level][0], 0x76);
        pause(20);
        hpet_row(names[by_level][1], 0x76);
        write32(HPET + 0x100, 2 << 9 | by_level << 1);
        hpet_row(names[by_level][2], 0x76);
        if (by_level)
            write32(HPET + 0x20, 1);
        else
            write32(HPET + 0x100, 2 << 9 | 4);
        hpet_row(names[by_level][3], 0x76);
    }
    write32(HPET + 0x100, 0x1f << 9);
    print("hpet, routes: %x\n", read32(HPET + 0x100) & 0x3e00);
    write32(HPET + 0x100, 0);
    /* With legacy replacement. */
    set_pin(2, 0x8076);
    write32(HPET + 0x10, 3);
    arm_hpet(4 | 2);
    pause(20);
    hpet_row("level in place of the 8254", 0x76);
    write32(HPET + 0x20, 1);
    hpet_row("level in place of the 8254, cleared", 0x76);
    write32(HPET + 0x100, 0);
    write32(HPET + 0x10, 0);
    write32(HPET + 0x20, 7);
    set_pin(2, 0x10000);
    write32(APIC + 0xb0, 0);
    write32(APIC + 0xb0, 0);
}

/* A virtio source of entropy on the PCI bus, and one queue for it. */
static struct {
    struct {
        uint64_t address;
        uint32_t length;
        uint16_t flags, next;
    } descriptors[8];
    struct {
        uint16_t flags, index, ring[8];
    } available;
    struct {
        uint16_t flags, index;
        struct {
            uint32_t id, length;
        } ring[8];
    } used __attribute__((aligned(4)));
    uint32_t data[8];
} queue __attribute__((aligned(4096)));

static uint32_t pci(unsigned slot, unsigned at)
{
    outl(0xcf8, 0x80000000 | slot << 11 | at);
    return inl(0xcfc);
}

static uint8_t pci8(unsigned slot, unsigned at) { return pci(slot, at & ~3u) >> (at & 3) * 8; }

static void set8(word at, uint8_t value) { *(volatile uint8_t *)at = value; }
static uint8_t get8(word at) { return *(volatile uint8_t *)at; }
static void set16(word at, uint16_t value) { *(volatile uint16_t *)at = value; }
static uint16_t get16(word at) { return *(volatile uint16_t *)at; }

static void set_address(word at, const volatile void *address)
{
    write32(at, (word)address);
    write32(at + 4, 0);
}

/* Where the structures of types 1 (common), 2 (notification) and 3 (interrupt status) are. */
static int find_virtio(unsigned slot, word places[4])
{
    for (unsigned at = pci8(slot, 0x34); at; at = pci8(slot, at + 1)) {
        unsigned type = pci8(slot, at + 3), bar = pci8(slot, at + 4);
        if (pci8(slot, at) == 9 && type < 4 && bar < 6 && !places[type])
            places[type] = (pci(slot, 0x10 + 4 * bar) & ~15u) + pci(slot, at + 8);
    }
    return places[1] && places[2] && places[3];
}

static void virtio_row(const char *name, unsigned irq, int by_level)
{
    print("virtio %s, %s: %u\n", by_level ? "line" : "interrupts", name, by_level ? level(irq) : edges(irq));
}

static void offer(unsigned count, word notify)
{
    while (count--) {
        unsigned n = queue.available.index & 7;
        queue.descriptors[n].address = (word)&queue.data[n];
        queue.descriptors[n].length = 4;
        queue.descriptors[n].flags = 2;
        queue.available.ring[n] = n;
        __asm__ volatile("" : : : "memory");
        queue.available.index++;
    }
    __asm__ volatile("" : : : "memory");
    set16(notify, 0);
    pause(20);
}

static void virtio_steps(const word places[4], unsigned irq, int by_level)
{
    word common = places[1];
    set8(common + 20, 0);
    queue.available.index = queue.used.index = queue.available.flags = 0;
    set8(common + 20, 1);
    set8(common + 20, 3);
    write32(common + 8, 1);
    write32(common + 12, 1);
    write32(common + 8, 0);
    write32(common + 12, 0);
    set8(common + 20, 0x0b);
    set16(common + 22, 0);
    set16(common + 24, 8);
    set_address(common + 32, queue.descriptors);
    set_address(common + 40, &queue.available);
    set_address(common + 48, &queue.used);
    set16(common + 28, 1);
    set8(common + 20, 0x0f);
    word notify = places[2] + 0 * get16(common + 30);
    get8(places[3]);
    watch_line(irq, by_level);
    virtio_row("ready", irq, by_level);
    offer(1, notify);
    virtio_row("a request", irq, by_level);
    offer(1, notify);
    virtio_row("another before the status is read", irq, by_level);
    print("virtio %s, status: %x\n", by_level ? "line" : "interrupts", get8(places[3]));
    virtio_row("status read", irq, by_level);
    print("virtio %s, status again: %x\n", by_level ? "line" : "interrupts", get8(places[3]));
    offer(2, notify);
    virtio_row("two requests", irq, by_level);
    get8(places[3]);
    queue.available.flags = 1;
    offer(1, notify);
    virtio_row("a request without interrupt", irq, by_level);
    queue.available.flags = 0;
    offer(1, notify);
    virtio_row("a request before reset", irq, by_level);
    set8(common + 20, 0);
    virtio_row("reset", irq, by_level);
    watch_line(irq, 0);
}

static void virtio_rows(void)
{
    word places[4] = {0};
    unsigned slot = 0;
    while (slot < 32 && pci(slot, 0) != 0x10441af4)
        slot++;
    if (slot == 32 || !find_virtio(slot, places)) {
        print("virtio source of entropy: none\n");
        return;
    }
    outl(0xcf8, 0x80000000 | slot << 11 | 4);
    outw(0xcfc, inw(0xcfc) | 6);
    unsigned irq = pci8(slot, 0x3c);
    for (int by_level = 0; by_level < 2; by_level++)
        virtio_steps(places, irq, by_level);
}

void line_rows(void)
{
    write32(APIC + 0x350, 0x700);
    outb(0x43, 0x30);
    uart_rows();
    for (int by_level = 0; by_level < 2; by_level++) {
        run_steps("the floppy controller", 6, by_level, floppy);
        run_steps("the mouse", 12, by_level, mouse);
    }
    run_steps("the keyboard", 1, 0, keyboard);
    reset_clock(0x28, 0x82);
    run_steps("the clock", 8, 0, rtc);
    reset_clock(0x26, 2);
    run_steps("the 8254", 0, 0, timer);
    virtio_rows();
    outb(0x21, 0xff);
    outb(0xa1, 0xff);
    write32(APIC + 0x350, 0x10700);
    hpet_rows();
}
