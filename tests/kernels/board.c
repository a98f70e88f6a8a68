/* Rows about what a kernel finds on the board: the BIOS data area, the MP table, ACPI, PCI, HPET, fw_cfg. */
#include "kernel.h"

#define HPET 0xfed00000

extern volatile unsigned interrupts[256];

static uint16_t read16(word at) { return *(volatile uint16_t *)at; }
static uint8_t read8(word at) { return *(volatile uint8_t *)at; }

static int same(word at, const char *text)
{
    for (; *text; text++)
        if (read8(at++) != (uint8_t)*text)
            return 0;
    return 1;
}

static int sums_up(word at, unsigned size)
{
    uint8_t sum = 0;
    while (size--)
        sum += read8(at++);
    return sum == 0;
}

static void bda_rows(void)
{
    word extended = read16(0x40e) * 16;
    print("bda com1: %x\n", read16(0x400));
    print("bda extended area at: %lx of %u KiB\n", extended, read8(extended));
    print("bda memory below it: %u KiB\n", read16(0x413));
    print("bda text mode: %x, %u columns, crt controller at %x\n", read8(0x449), read16(0x44a), read16(0x463));
}

/* Looks where the MP specification says, in its order. */
static word find_mp(const char **where)
{
    word extended = read16(0x40e) * 16, base = (read16(0x413) - 1) * 1024;
    *where = "the extended BIOS data area";
    for (word at = extended; at < extended + 1024; at += 16)
        if (same(at, "_MP_") && sums_up(at, 16))
            return at;
    *where = "base memory";
    for (word at = base; at < base + 1024; at += 16)
        if (same(at, "_MP_") && sums_up(at, 16))
            return at;
    *where = "the BIOS";
    for (word at = 0xf0000; at < 0x100000; at += 16)
        if (same(at, "_MP_") && sums_up(at, 16))
            return at;
    return 0;
}

static void mp_rows(void)
{
    const char *where;
    word pointer = find_mp(&where), table, at;
    unsigned processors = 0, io_apics = 0, timer_pin = ~0u, isa = ~0u, pci = ~0u;
    uint32_t io_apic = 0;
    if (!pointer) {
        print("mp table: none\n");
        return;
    }
    table = read32(pointer + 4);
    print("mp pointer in: %s\n", where);
    print("mp table: %u\n", same(table, "PCMP") && sums_up(table, read16(table + 4)));
    print("mp local apic: %x\n", read32(table + 36));
    at = table + 44;
    for (unsigned n = read16(table + 34); n; n--) {
        switch (read8(at)) {
        case 0:
            processors += read8(at + 3) & 1;
            break;
        case 1:
            if (same(at + 2, "ISA"))
                isa = read8(at + 1);
            if (same(at + 2, "PCI"))
                pci = read8(at + 1);
            break;
        case 2:
            io_apics++;
            io_apic = read32(at + 4);
            break;
        case 3:
            if (read8(at + 4) == isa && read8(at + 5) == 0 && read8(at + 1) == 0)
                timer_pin = read8(at + 7);
            break;
        }
        at += read8(at) == 0 ? 20 : 8;
    }
    print("mp processors: %u\n", processors);
    print("mp io apics: %u at %x\n", io_apics, io_apic);
    print("mp buses pci: %x isa %x\n", pci, isa);
    print("mp timer at pin: %u\n", timer_pin);
    print("mp that io apic answers: %u\n", (write32(io_apic, 1), read32(io_apic + 0x10) >> 16 == 23));
}

static word table_of(word root, const char *name)
{
    for (unsigned n = 0; n < (read32(root + 4) - 36) / 4; n++)
        if (same(read32(root + 36 + 4 * n), name))
            return read32(root + 36 + 4 * n);
    return 0;
}

static void acpi_rows(void)
{
    static const char *const names[] = {"FACP", "APIC", "HPET"};
    word root = 0, fadt;
    for (word at = 0xe0000; at < 0x100000 && !root; at += 16)
        if (same(at, "RSD PTR ") && sums_up(at, 20))
            root = read32(at + 16);
    print("acpi root: %u\n", root && same(root, "RSDT") && sums_up(root, read32(root + 4)));
    if (!root)
        return;
    for (unsigned n = 0; n < 3; n++) {
        word at = table_of(root, names[n]);
        print("acpi %s: %u\n", names[n], at && sums_up(at, read32(at + 4)));
    }
    fadt = table_of(root, "FACP");
    print("acpi sci: %u\n", read16(fadt + 46));
    print("acpi event block: %x\n", read32(fadt + 56));
    print("acpi control block: %x\n", read32(fadt + 64));
    print("acpi timer: %x\n", read32(fadt + 76));
    print("acpi reset register: %u\n", read32(fadt + 112) >> 10 & 1);
    print("acpi control: %x\n", inw(read32(fadt + 64)) & 1);
    uint32_t first = inl(read32(fadt + 76));
    for (volatile int n = 0; n < 100000; n++)
        ;
    print("acpi timer goes on: %u\n", inl(read32(fadt + 76)) != first);
    print("acpi hpet at: %x\n", read32(table_of(root, "HPET") + 44));
}

static uint32_t pci(unsigned slot, unsigned at)
{
    outl(0xcf8, 0x80000000 | slot << 11 | at);
    return inl(0xcfc);
}

static void pci_rows(void)
{
    outl(0xcf8, 0x80123457);
    print("pci address reads back: %x\n", inl(0xcf8));
    for (unsigned slot = 0; slot < 2; slot++) {
        print("pci %u device: %x\n", slot, pci(slot, 0));
        print("pci %u class: %x\n", slot, pci(slot, 8) >> 8);
        print("pci %u header: %x\n", slot, pci(slot, 12) >> 16 & 0xff);
        print("pci %u first base address: %x\n", slot, pci(slot, 16));
    }
    print("pci 1f device: %x\n", pci(31, 0));
    print("pci 16 bits at offset 2: %x\n", (pci(0, 0), inw(0xcfe)));
    print("pci 8 bits at offset 3: %x\n", (pci(0, 0), inb(0xcff)));
    outl(0xcf8, 0);
    print("pci not enabled: %x\n", inl(0xcfc));
}

static void hpet_rows(void)
{
    print("hpet capabilities: %x\n", read32(HPET));
    print("hpet period: %x\n", read32(HPET + 4));
    write32(HPET + 0x10, 0);
    write32(HPET + 0xf0, 0);
    write32(HPET + 0xf4, 0);
    for (volatile int n = 0; n < 100000; n++)
        ;
    print("hpet counter while it stands: %x\n", read32(HPET + 0xf0));
    write32(HPET + 0x10, 1);
    for (volatile int n = 0; n < 100000; n++)
        ;
    print("hpet counter goes on: %u\n", read32(HPET + 0xf0) > 0);
    print("hpet configuration: %x\n", read32(HPET + 0x10));
    print("hpet timer 0 at first: %x\n", read32(HPET + 0x100));
    write32(HPET + 0x100, 0xffffffff);
    print("hpet timer 0 of ones: %x\n", read32(HPET + 0x100) & ~0x3e00u);
    write32(HPET + 0x100, 0);
    /* By legacy replacement in place of the 8254, through pin 2 of the I/O APIC. */
    write32(0xfec00000, 0x14);
    write32(0xfec00010, 0x73);
    write32(HPET + 0x10, 3);
    write32(HPET + 0x100, 4);
    write32(HPET + 0x108, read32(HPET + 0xf0) + 1000000);
    write32(HPET + 0x10c, 0);
    for (unsigned n = 0; n < 10000000 && !interrupts[0x73]; n++)
        __asm__ volatile("sti; nop; nop; cli" : : : "memory");
    print("hpet timer 0 interrupts: %u\n", interrupts[0x73]);
    write32(0xfee000b0, 0);
    write32(HPET + 0x10, 0);
    write32(0xfec00010, 0x10000);
}

static void fw_cfg(uint16_t key) { outw(0x510, key); }
static uint64_t fw_cfg_number(int bytes)
{
    uint64_t value = 0;
    for (int n = 0; n < bytes; n++)
        value |= (uint64_t)inb(0x511) << 8 * n;
    return value;
}

static void fw_cfg_rows(void)
{
    fw_cfg(0);
    print("fw_cfg signature: %x\n", (uint32_t)fw_cfg_number(4));
    print("fw_cfg after its end: %x\n", inb(0x511));
    fw_cfg(1);
    print("fw_cfg ports: %x\n", (uint32_t)fw_cfg_number(4) & 1);
    fw_cfg(3);
    print("fw_cfg memory: %llx\n", fw_cfg_number(8));
    fw_cfg(5);
    print("fw_cfg processors: %x\n", (uint32_t)fw_cfg_number(2));
    fw_cfg(15);
    print("fw_cfg most processors: %x\n", (uint32_t)fw_cfg_number(2));
    fw_cfg(0x19);
    unsigned count = 0, map = 0, map_size = 0, own = 0;
    for (int n = 0; n < 4; n++)
        count = count << 8 | inb(0x511);
    while (count--) {
        unsigned size = 0, key = 0;
        char name[57] = {0};
        for (int n = 0; n < 4; n++)
            size = size << 8 | inb(0x511);
        key = inb(0x511) << 8;
        key |= inb(0x511);
        /* Reserved. */
        inb(0x511);
        inb(0x511);
        for (int n = 0; n < 56; n++)
            name[n] = inb(0x511);
        if (same((word)name, "etc/e820"))
            map = key, map_size = size;
        if (same((word)name, "opt/rows"))
            own = key;
    }
    print("fw_cfg etc/e820: %u\n", map != 0 && map_size % 20 == 0);
    fw_cfg(own);
    print("fw_cfg opt/rows: ");
    for (int n = 0; n < 3; n++)
        put(inb(0x511));
    put('\n');
    fw_cfg(0x3fff);
    print("fw_cfg an item that is not there: %x\n", inb(0x511));
}

void board_rows(void)
{
    bda_rows();
    mp_rows();
    acpi_rows();
    pci_rows();
    hpet_rows();
    fw_cfg_rows();
}
