/* Shows each scan code of the keyboard on the text screen and on COM1, until Enter is released. */
#include "kernel.h"

static void show(unsigned at, char c) { ((volatile uint16_t *)0xb8000)[at] = 0x0700 | (uint8_t)c; }

int main(void)
{
    unsigned at = 0;
    uint8_t code;
    for (unsigned n = 0; n < 80 * 25; n++)
        show(n, ' ');
    do {
        while (!(inb(0x64) & 1))
            ;
        code = inb(0x60);
        print("%02x ", code);
        show(at++, "0123456789abcdef"[code >> 4]);
        show(at++, "0123456789abcdef"[code & 15]);
        at++;
    } while (code != 0x9c);
    print("\n");
    return 0;
}
