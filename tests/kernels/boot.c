/* A 64-bit kernel: prints what its boot loader has told it, goes out of long mode and back, and ends with 42. */
#include "kernel.h"

extern char end[];
void there_and_back(uint32_t *seen);

static uint64_t read64(word at) { return read32(at) | (uint64_t)read32(at + 4) << 32; }

/* The arguments, without the kernel's name. */
static void arguments(word line, int named)
{
    const char *text = (const char *)line;
    while (named && *text && *text++ != ' ')
        ;
    print("arguments: %s\n", text);
}

static void range(uint64_t start, uint64_t size, uint32_t kind)
{
    if (kind == 1)
        print("usable from %llx%s\n", start, start + size > 16 << 20 ? " on" : " up to 9fc00");
}

static void module(uint32_t start, uint32_t size, const char *name)
{
    uint32_t sum = 0;
    for (uint32_t n = 0; n < size; n++)
        sum += *(uint8_t *)(word)(start + n);
    print("module after the kernel: %u, %u bytes, sum %u, %s\n", start >= (word)end, size, sum, name);
}

#ifdef MULTIBOOT
static void tell(word info)
{
    uint32_t flags = read32(info);
    print("memory below: %u KiB\n", read32(info + 4));
    print("flags: %x\n", flags & 0x4d);
    arguments(read32(info + 16), 1);
    for (uint32_t n = 0, at = read32(info + 24); n < read32(info + 20); n++, at += 16)
        module(read32(at), read32(at + 4) - read32(at), (char *)(word)read32(at + 8));
    uint32_t map = read32(info + 48), map_end = map + read32(info + 44);
    for (; map < map_end; map += read32(map) + 4)
        range(read64(map + 4), read64(map + 12), read32(map + 20));
}
#endif

#ifdef MULTIBOOT2
static void tell(word info)
{
    word at = info + 8, limit = info + read32(info);
    for (; at < limit && read32(at); at += (read32(at + 4) + 7) & ~7u) {
        switch (read32(at)) {
        case 1:
            arguments(at + 8, 0);
            break;
        case 3:
            module(read32(at + 8), read32(at + 12) - read32(at + 8), (char *)(at + 16));
            break;
        case 4:
            print("memory below: %u KiB\n", read32(at + 8));
            break;
        case 6:
            for (word entry = at + 16; entry < at + read32(at + 4); entry += read32(at + 8))
                range(read64(entry), read64(entry + 8), read32(entry + 16));
            break;
        case 8:
            print("screen: %llx %u %u %u type %u\n", read64(at + 8), read32(at + 16), read32(at + 20), read32(at + 24), *(uint8_t *)(at + 29));
            break;
        case 9:
            print("sections: %u bytes each\n", read32(at + 12));
            break;
        case 14:
        case 15:
            print("acpi root pointer %u: %c%c%c\n", read32(at), *(char *)(at + 8), *(char *)(at + 9), *(char *)(at + 10));
            break;
        }
    }
    print("the tags end at their size: %u\n", at + 8 == limit);
}
#endif

#ifdef PVH
static void tell(word info)
{
    print("magic: %x\n", read32(info));
    print("version: %u\n", read32(info + 4));
    arguments(read64(info + 24), 0);
    for (uint32_t n = 0; n < read32(info + 12); n++) {
        word at = read64(info + 16) + 32 * n;
        module(read64(at), read64(at + 8), "");
    }
    print("acpi root pointer: %u\n", read64(info + 32) != 0);
    for (uint32_t n = 0; n < read32(info + 48); n++) {
        word at = read64(info + 40) + 24 * n;
        range(read64(at), read64(at + 8), read32(at + 16));
    }
}
#endif

int main(void)
{
    uint32_t seen[4];
    word cs, efer = rdmsr(0xc0000080);
    __asm__("mov %%cs, %0" : "=r"(cs));
    print("boot: %x\n", boot_magic);
    tell(boot_info);
    print("64-bit mode: cs %lx efer %lx\n", cs, efer);
    for (int n = 0; n < 1000; n++)
        there_and_back(seen);
    print("outside: cr0 %x efer %x; in compatibility mode: efer %x cs %x\n", seen[0], seen[1], seen[2], seen[3]);
    set_up_traps();
    static const uint8_t undefined[] = {0x0f, 0x0b};
    print("ud2 in 64-bit code: %lx\n", run(undefined, CS64, 2)->vector);
    print("ud2 in 32-bit code: %lx\n", run(undefined, CS32, 2)->vector);
    print("boot: end\n");
    return 42;
}
