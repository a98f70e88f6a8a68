/* SPDX-License-Identifier: GPL-2.0-or-later
 * The console: the first serial port, polled. */
#include "driver_trace.h"
#include "kernel.h"

#define COM1 0x3f8

static void serial_put(char c)
{
	while (!(inb(COM1 + 5) & 0x20))
		;
	outb(COM1, c);
}

void console_write(const char *text, unsigned n)
{
	while (n--) {
		if (*text == '\n')
			serial_put('\r');
		serial_put(*text++);
	}
}

void printk(const char *fmt, ...)
{
	char line[160];
	__builtin_va_list args;

	__builtin_va_start(args, fmt);
	console_write(line, format(line, sizeof(line), fmt, args));
	__builtin_va_end(args);
}

void halt(void)
{
	for (;;)
		__asm__ volatile("cli; hlt");
}

void panic(const char *why)
{
	TRACE(kernel_trace, DTI_LEVEL_EMERG, "panic: %s", why);
	printk("vmlinux: panic: %s\n", why);
	halt();
}
