/* SPDX-License-Identifier: GPL-2.0-or-later
 * Static probe sites: instructions that do nothing, each at a global symbol of its own name. `counter`
 * says how often it ran. A site must be expanded once: use it in functions that are not inlined. */
#ifndef SDT_H
#define SDT_H

#define SDT_SITE(name, bytes, counter)                                                  \
	do {                                                                            \
		(counter)++;                                                            \
		__asm__ volatile(".globl " #name "\n" #name ":\n\t.byte " bytes);       \
	} while (0)

#define SDT_NOP5 "0x0f, 0x1f, 0x44, 0x00, 0x00" /* nopl 0(%eax,%eax,1), as Linux has at each function */
#define SDT_NOP2 "0x66, 0x90"
/* What Solaris's loader leaves of a call: f0 over the second makes it `lock nop`. */
#define SDT_CALL "0x90, 0x90, 0x90, 0x90, 0x90"
#if __SIZEOF_LONG__ == 4
#define SDT_NOP5_OLD "0x3e, 0x8d, 0x74, 0x26, 0x00" /* lea %ds:0(%esi,%eiz,1),%esi */
#else
#define SDT_NOP5_OLD SDT_NOP5 /* the old one clears half of rsi there */
#endif

#endif
