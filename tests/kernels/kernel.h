/* What the parts of the test kernels share. Also read by the assembler. */
#define CS32 0x08
#define DS0 0x10
#define CS64 0x18
#define USER_CS32 0x23
#define USER_DS 0x2b
#define USER_CS64 0x33
#define TSS_SEL 0x38
#define ABSENT_DATA 0x48
#define ABSENT_CODE 0x50
#define READ_ONLY 0x58
#define EXECUTE_ONLY 0x60
#define LONG_AND_BIG 0x68
#define CONFORMING 0x70
#define LDT_SEL 0x78
#define LAST 0x88
/* The first selector past the table. */
#define OUTSIDE 0x90

#ifndef __ASSEMBLER__
#include <stdint.h>

typedef uintptr_t word;

/* The registers at an exception, as traps.S pushes them; `error` is 0 where there is none. */
struct frame {
#ifdef __x86_64__
    word r15, r14, r13, r12, r11, r10, r9, r8;
#endif
    word di, si, bp, dx, cx, bx, ax;
    word vector, error, ip, cs, flags, sp, ss;
};

extern uint32_t boot_magic, boot_info;

void put(char c);
void print(const char *format, ...);

void set_up_traps(void);
/* Runs code in a ring until it traps, with these flags and this code segment; the registers at the trap. */
struct frame *run(const void *code, unsigned cs, word flags);
/* Whether a vector's frame has an error code. */
int has_error_code(unsigned vector);

/* The value that the kernel ends with goes to the debug-exit port. */
int main(void);

static inline void outb(uint16_t port, uint8_t value) { __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port)); }
static inline void outw(uint16_t port, uint16_t value) { __asm__ volatile("outw %0, %1" : : "a"(value), "Nd"(port)); }
static inline void outl(uint16_t port, uint32_t value) { __asm__ volatile("outl %0, %1" : : "a"(value), "Nd"(port)); }
static inline uint8_t inb(uint16_t port) { uint8_t v; __asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port)); return v; }
static inline uint16_t inw(uint16_t port) { uint16_t v; __asm__ volatile("inw %1, %0" : "=a"(v) : "Nd"(port)); return v; }
static inline uint32_t inl(uint16_t port) { uint32_t v; __asm__ volatile("inl %1, %0" : "=a"(v) : "Nd"(port)); return v; }

static inline uint64_t rdmsr(uint32_t index)
{
    uint32_t low, high;
    __asm__ volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(index));
    return (uint64_t)high << 32 | low;
}

static inline void wrmsr(uint32_t index, uint64_t value)
{
    __asm__ volatile("wrmsr" : : "c"(index), "a"((uint32_t)value), "d"((uint32_t)(value >> 32)) : "memory");
}

static inline uint32_t read32(word at) { return *(volatile uint32_t *)at; }
static inline void write32(word at, uint32_t value) { *(volatile uint32_t *)at = value; }
#endif
