/* SPDX-License-Identifier: GPL-2.0-or-later
 * The little that kernel and program both need; built into each. */
#include "format.h"

static void put(char *out, unsigned size, unsigned *n, char c)
{
	if (*n + 1 < size)
		out[(*n)++] = c;
}

static void put_hex(char *out, unsigned size, unsigned *n, unsigned long value, int digits)
{
	while (digits--)
		put(out, size, n, "0123456789abcdef"[(value >> (digits * 4)) & 15]);
}

static void put_decimal(char *out, unsigned size, unsigned *n, unsigned value)
{
	char digits[10];
	int count = 0;

	do {
		digits[count++] = '0' + value % 10;
		value /= 10;
	} while (value);
	while (count--)
		put(out, size, n, digits[count]);
}

unsigned format(char *out, unsigned size, const char *fmt, __builtin_va_list args)
{
	unsigned n = 0;

	for (; *fmt; fmt++) {
		if (*fmt != '%') {
			put(out, size, &n, *fmt);
			continue;
		}
		switch (*++fmt) {
		case 's':
			for (const char *s = __builtin_va_arg(args, const char *); *s; s++)
				put(out, size, &n, *s);
			break;
		case 'u':
			put_decimal(out, size, &n, __builtin_va_arg(args, unsigned));
			break;
		case 'x':
			put(out, size, &n, '0');
			put(out, size, &n, 'x');
			put_hex(out, size, &n, __builtin_va_arg(args, unsigned long), 2 * sizeof(long));
			break;
		case 'b':
			put_hex(out, size, &n, __builtin_va_arg(args, unsigned), 2);
			break;
		default:
			put(out, size, &n, *fmt);
		}
	}
	out[n] = 0;
	return n;
}

unsigned fnv1a_more(unsigned hash, const void *from, const void *to)
{
	for (const unsigned char *p = from; p < (const unsigned char *)to; p++)
		hash = (hash ^ *p) * 0x01000193;
	return hash;
}

unsigned fnv1a(const void *from, const void *to)
{
	return fnv1a_more(FNV1A_START, from, to);
}

void *memcpy(void *to, const void *from, unsigned long n)
{
	void *start = to;
	unsigned long words = n / 4, rest = n % 4;

	__asm__ volatile("rep movsl" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(rest) : : "memory");
	return start;
}

void *memset(void *to, int value, unsigned long n)
{
	void *start = to;
	unsigned long words = n / 4, rest = n % 4;

	__asm__ volatile("rep stosl" : "+D"(to), "+c"(words) : "a"((value & 0xff) * 0x01010101u)
			 : "memory");
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(rest) : "a"(value) : "memory");
	return start;
}
