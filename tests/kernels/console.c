/* Text on COM1. */
#include "kernel.h"
#include <stdarg.h>

void put(char c)
{
    while (!(inb(0x3f8 + 5) & 0x20))
        ;
    outb(0x3f8, c);
}

static void number(uint64_t value, unsigned base, int digits)
{
    char text[24];
    int n = 0;
    do {
        /* The low part alone: a division of 64 bits would need the compiler's library in 32-bit code. */
        unsigned digit = base == 16 ? value & 15 : (uint32_t)value % base;
        text[n++] = "0123456789abcdef"[digit];
        value = base == 16 ? value >> 4 : (uint32_t)value / base;
    } while (value || n < digits);
    while (n)
        put(text[--n]);
}

/* %s text, %c character, %u decimal of 32 bits, %x hexadecimal of 32 bits, %lx of a word, %llx of 64 bits; %08x pads with zeros. */
void print(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    for (; *format; format++) {
        int digits = 0, longs = 0;
        if (*format != '%') {
            put(*format);
            continue;
        }
        for (format++; *format >= '0' && *format <= '9'; format++)
            digits = digits * 10 + *format - '0';
        for (; *format == 'l'; format++)
            longs++;
        switch (*format) {
        case 's':
            for (const char *text = va_arg(args, const char *); *text; text++)
                put(*text);
            break;
        case 'c':
            put(va_arg(args, int));
            break;
        case 'u':
            number(va_arg(args, unsigned), 10, digits);
            break;
        case 'x':
            number(longs == 2   ? va_arg(args, uint64_t)
                   : longs == 1 ? va_arg(args, word)
                                : va_arg(args, unsigned),
                   16, digits);
            break;
        }
    }
    va_end(args);
}
