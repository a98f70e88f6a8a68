/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FORMAT_H
#define FORMAT_H

/* Formats %s, %u, %x (8 or 16 digits with 0x), %b (one byte, 2 digits) and %%; always terminates.
 * Returns the length written. */
unsigned format(char *out, unsigned size, const char *fmt, __builtin_va_list args);
/* The FNV-1a checksum of some bytes, and of further bytes. */
#define FNV1A_START 0x811c9dc5
unsigned fnv1a(const void *from, const void *to);
unsigned fnv1a_more(unsigned hash, const void *from, const void *to);
void *memcpy(void *to, const void *from, unsigned long n);
void *memset(void *to, int value, unsigned long n);

#endif
