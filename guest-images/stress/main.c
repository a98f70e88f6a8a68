// SPDX-License-Identifier: GPL-2.0-or-later
/* stress            runs all checks and prints a line for each: `name: ok`, or what differed
 * stress NAME ...   runs these
 * stress opens N    opens a file N times: something for the kernel's tracers to count
 *
 * No line has a pid, a time or an address in it unless something is wrong. */

#include "stress.h"
#include <stdarg.h>

#define TIME_LIMIT 120

static const struct check *const groups[] = { process_checks, memory_checks, code_checks, fault_checks, trace_checks };

void *memcpy(void *to, const void *from, size_t size)
{
	uint8_t *t = to;
	const uint8_t *f = from;
	for (size_t i = 0; i < size; i++)
		t[i] = f[i];
	return to;
}

void *memset(void *to, int byte, size_t size)
{
	uint8_t *t = to;
	for (size_t i = 0; i < size; i++)
		t[i] = byte;
	return to;
}

static size_t length(const char *text)
{
	size_t n = 0;
	while (text[n])
		n++;
	return n;
}

static int same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

void say(const char *text)
{
	SYS3(write, 1, text, length(text));
}

static char sentence[256];

static size_t put_number(size_t at, unsigned long number, unsigned base)
{
	char digits[24];
	size_t n = 0;
	do
		digits[n++] = "0123456789abcdef"[number % base];
	while (number /= base);
	while (n && at < sizeof sentence - 1)
		sentence[at++] = digits[--n];
	return at;
}

const char *differs(const char *format, ...)
{
	va_list arguments;
	size_t at = 0;
	va_start(arguments, format);
	for (; *format && at < sizeof sentence - 1; format++) {
		if (*format != '%') {
			sentence[at++] = *format;
			continue;
		}
		switch (*++format) {
		case 'd':
			at = put_number(at, va_arg(arguments, long), 10);
			break;
		case 'x':
			at = put_number(at, va_arg(arguments, long), 16);
			break;
		default:
			for (const char *text = va_arg(arguments, const char *); *text && at < sizeof sentence - 1; text++)
				sentence[at++] = *text;
		}
	}
	va_end(arguments);
	sentence[at] = 0;
	return sentence;
}

void put_function(uint8_t *at, int number)
{
	at[0] = 0xb8;
	memcpy(at + 1, &number, sizeof number);
	at[5] = 0xc3;
}

/* In a separate process, with a time limit, so that no check can end or stop the others. */
static int run(const struct check *check)
{
	char *shared = map(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	long child = SYS0(fork);
	if (child == 0) {
		SYS1(alarm, TIME_LIMIT);
		const char *wrong = check->run();
		if (wrong)
			memcpy(shared, wrong, length(wrong) + 1);
		quit(wrong ? 1 : 0);
	}
	long status = wait_for(child);
	say(check->name);
	say(": ");
	if (status == EXITED(0))
		say("ok");
	else if (status == EXITED(1))
		say(shared);
	else
		say(differs("its process ended with status %x", status));
	say("\n");
	SYS2(munmap, shared, PAGE);
	return status != 0;
}

static int open_often(const char *times)
{
	long n = 0;
	while (*times >= '0' && *times <= '9')
		n = n * 10 + *times++ - '0';
	while (n--) {
		long file = SYS4(openat, AT_FDCWD, "/dev/null", O_RDONLY, 0);
		if (file < 0)
			return 1;
		SYS1(close, file);
	}
	return 0;
}

/* The auxiliary vector: pairs of numbers after arguments and environment. */
long *auxiliary;

void begin(long *stack)
{
	long count = stack[0];
	char **words = (char **)(stack + 1);
	int wrong = 0;
	for (auxiliary = stack + count + 2; *auxiliary; auxiliary++)
		;
	auxiliary++;
	if (count == 3 && same(words[1], "opens"))
		quit(open_often(words[2]));
	for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
		for (const struct check *check = groups[g]; check->name; check++) {
			int wanted = count == 1;
			for (long i = 1; i < count; i++)
				wanted |= same(words[i], check->name);
			if (wanted)
				wrong |= run(check);
		}
	}
	quit(wrong);
}
