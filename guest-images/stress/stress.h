/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A check gives 0, or a sentence on what differed. It runs in a separate process. */
#ifndef STRESS_H
#define STRESS_H

#include "sys.h"

struct check {
	const char *name;
	const char *(*run)(void);
};

extern const struct check process_checks[], memory_checks[], code_checks[], fault_checks[], trace_checks[];

/* A sentence, from a format with %d, %x and %s. */
const char *differs(const char *format, ...);

/* Prints a text. */
void say(const char *text);

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);

/* Checks that two numbers are the same. */
#define EXPECT(what, found, right)                                                                                     \
	do {                                                                                                           \
		long found_ = (long)(found), right_ = (long)(right);                                                   \
		if (found_ != right_)                                                                                  \
			return differs("%s: %x, not %x", what, found_, right_);                                        \
	} while (0)

/* Puts a function that returns a number at a place: mov $number, %eax; ret. */
#define RETURNS_SIZE 6
void put_function(uint8_t *at, int number);

/* The trap flag. */
#define TF 0x100

/* For assembly that is the same at both widths. */
#ifdef __x86_64__
#define AX "rax"
#define DI "rdi"
#define SP "rsp"
#define SYSCALL "syscall"
#else
#define AX "eax"
#define DI "edi"
#define SP "esp"
#define SYSCALL "int $0x80"
#endif
#define STRING_(x) #x
#define STRING(x) STRING_(x)

/* Calls the function there. */
static inline int call(const void *at)
{
	return ((int (*)(void))at)();
}

#endif
