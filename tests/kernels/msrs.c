/* Rows about CPUID and the model-specific registers. */
#include "kernel.h"
#include "rows.h"

static void cpuid(uint32_t leaf, uint32_t r[4])
{
    __asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(0));
}

/* The features of a word of CPUID, from bit 0 on; an empty name is a reserved bit. */
static void features(uint32_t leaf, int reg, const char *const *names)
{
    uint32_t r[4];
    cpuid(leaf, r);
    for (int bit = 0; names[bit]; bit++)
        if (*names[bit])
            print("cpuid %s: %u\n", names[bit], r[reg] >> bit & 1);
}

static const char *const leaf_1_edx[] = {
    "fpu", "vme",  "de",   "pse",     "tsc", "msr", "pae",  "mce", "cx8", "apic", "",   "sep", "mtrr", "pge", "mca", "cmov", "pat",
    "pse36", "psn", "clflush", "", "ds", "acpi", "mmx", "fxsr", "sse", "sse2", "ss", "htt", "tm", "", "pbe", 0};
static const char *const leaf_1_ecx[] = {
    "sse3", "pclmulqdq", "dtes64", "monitor", "ds_cpl", "vmx", "smx", "est", "tm2", "ssse3", "cnxt_id", "sdbg", "fma", "cx16", "xtpr",
    "pdcm", "", "pcid", "dca", "sse4.1", "sse4.2", "x2apic", "movbe", "popcnt", "tsc_deadline", "aes", "xsave", "osxsave", "avx", "f16c",
    "rdrand", "hypervisor", 0};
static const char *const extended_edx[] = {"", "", "", "", "", "", "", "", "", "", "", "syscall", "", "", "", "", "", "", "", "",
                                           "nx", "", "mmxext", "", "", "fxsr_opt", "1g pages", "rdtscp", "", "lm", "3dnowext", "3dnow", 0};
static const char *const extended_ecx[] = {"lahf", "cmp_legacy", "svm", "extapic", "cr8_legacy", "abm", "sse4a", "misalignsse", "3dnowprefetch", 0};

static void cpuid_rows(void)
{
    uint32_t r[4];
    cpuid(0, r);
    print("cpuid vendor: %08x %08x %08x\n", r[1], r[3], r[2]);
    print("cpuid highest leaf: %x\n", r[0]);
    cpuid(1, r);
    print("cpuid signature: %x\n", r[0]);
    print("cpuid apic id: %x\n", r[1] >> 24);
    print("cpuid bytes that clflush writes: %u\n", (r[1] >> 8 & 0xff) * 8);
    features(1, 3, leaf_1_edx);
    features(1, 2, leaf_1_ecx);
    cpuid(0x80000000, r);
    print("cpuid highest extended leaf: %x\n", r[0]);
    features(0x80000001, 3, extended_edx);
    features(0x80000001, 2, extended_ecx);
    cpuid(0x80000008, r);
    print("cpuid address bits: %x\n", r[0] & 0xffff);
    cpuid(0x80000007, r);
    print("cpuid invariant tsc: %u\n", r[3] >> 8 & 1);
    cpuid(7, r);
    print("cpuid leaf 7: %x %x %x\n", r[1], r[2], r[3]);
    cpuid(0x40000000, r);
    print("cpuid of the hypervisor: %08x %08x %08x\n", r[1], r[2], r[3]);
}

static uint8_t code[32] __attribute__((aligned(16)));

static void emit(unsigned at, uint8_t opcode, uint32_t value)
{
    code[at] = opcode;
    for (int n = 0; n < 4; n++)
        code[at + 1 + n] = value >> 8 * n;
}

#ifdef __x86_64__
#define CODE CS64
#else
#define CODE CS32
#endif

/* Runs RDMSR; whether it was done. */
static int read_msr(uint32_t index, uint64_t *value, struct frame *f)
{
    emit(0, 0xb9, index);
    code[5] = 0x0f, code[6] = 0x32, code[7] = 0xcd, code[8] = 0x30;
    *f = *run(code, CODE, 2);
    *value = (uint64_t)f->dx << 32 | f->ax;
    return f->vector == 0x30;
}

static void outcome(const struct frame *f)
{
    if (f->vector == 0x30)
        print("done\n");
    else
        print("exception %u (%04lx)\n", (unsigned)f->vector, f->error);
}

static void read_row(uint32_t index, int shown)
{
    struct frame f;
    uint64_t value;
    print("rdmsr %x: ", index);
    if (read_msr(index, &value, &f) && shown)
        print("%llx\n", value);
    else
        outcome(&f);
}

/* Writes, and shows what is there afterwards; then writes back what was there before. */
static void write_row(uint32_t index, uint64_t value)
{
    struct frame f;
    uint64_t before, after;
    int readable = read_msr(index, &before, &f);
    emit(0, 0xb9, index);
    emit(5, 0xb8, value);
    emit(10, 0xba, value >> 32);
    code[15] = 0x0f, code[16] = 0x30, code[17] = 0xcd, code[18] = 0x30;
    f = *run(code, CODE, 2);
    print("wrmsr %x of %llx: ", index, value);
    struct frame g;
    if (f.vector == 0x30 && readable && read_msr(index, &after, &g)) {
        print("%llx\n", after);
        wrmsr(index, before);
    } else {
        outcome(&f);
    }
}

void cpu_rows(void)
{
    static const uint32_t fixed[] = {0x17, 0x1b, 0x2a, 0x3a, 0x8b, 0xce, 0xfe, 0x174, 0x175, 0x176, 0x179, 0x186, 0x198, 0x199, 0x19a, 0x19c, 0x1a0,
                                     0x1d9, 0x200, 0x250, 0x277, 0x2ff, 0x38f, 0x400, 0x480, 0x6e0, 0x802, 0xc0000081, 0xc0000082, 0xc0000083,
                                     0xc0000084, 0xc0000100, 0xc0000101, 0xc0000102, 0xc0000103, 0xc0010015, 0xc001001f, 0x12345678};
    cpuid_rows();
    read_row(0x10, 0);
    read_row(0xc0000080, 1);
    for (unsigned n = 0; n < sizeof(fixed) / sizeof(*fixed); n++)
        read_row(fixed[n], 1);
    const uint64_t bent = 1ull << 47;
    write_row(0x1b, 0xfee00100);
    write_row(0x1b, 0xfee00900);
    write_row(0x1b, 0xfee00d00);
    write_row(0x1b, 0xfef00900);
    write_row(0x1b, 1ull << 40 | 0xfee00900);
    write_row(0x174, 0x1234);
    write_row(0x175, 0x12345678);
    write_row(0x175, bent);
    write_row(0x176, 0xffffffff80000000);
    write_row(0x176, bent);
    write_row(0x1a0, 0);
    write_row(0x1a0, 1);
    write_row(0x277, 0x0007040600070406);
    write_row(0x277, 0x0007010600070106);
    write_row(0x277, 2);
    write_row(0x277, 8);
    write_row(0xc0000080, 0xd01);
    write_row(0xc0000080, 0xd00);
    write_row(0xc0000081, 0x0023001000000000);
    write_row(0xc0000082, 0xffffffff81000000);
    write_row(0xc0000082, bent);
    write_row(0xc0000083, bent);
    write_row(0xc0000084, 0x47700);
    write_row(0xc0000084, 1ull << 32);
    write_row(0xc0000100, 0x123456789a);
    write_row(0xc0000100, bent);
    write_row(0xc0000101, bent);
    write_row(0xc0000102, bent);
    write_row(0xc0000102, 0xffff888000000000);
    write_row(0xc0000103, 5);
    write_row(0xc0000103, 1ull << 32);
    write_row(0x8b, 0);
    write_row(0x79, 0);
    write_row(0xfe, 0);
    write_row(0x12345678, 0);
}
