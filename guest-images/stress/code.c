// SPDX-License-Identifier: GPL-2.0-or-later
/* Code that changes: through another mapping of its page, through the file, through /proc, by itself. */

#include "stress.h"

#define ROUNDS 200

static uint8_t *writable_code(void)
{
	return pages(2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
}

/* Two mappings of a page: one to write, one to run. */
static const char *dual_mapped(void)
{
	long file = SYS2(memfd_create, "code", 0);
	EXPECT("ftruncate", SYS2(ftruncate, file, PAGE), 0);
	uint8_t *data = map(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file);
	uint8_t *code = map(0, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file);
	uint8_t *again = map(0, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file);
	if (failed(data) || failed(code) || failed(again))
		return "the file cannot be mapped";
	for (int i = 0; i < ROUNDS; i++) {
		put_function(data + 128, i);
		EXPECT("the function", call(code + 128), i);
		EXPECT("through a third mapping", call(again + 128), i);
		data[129] = i + 1;
		EXPECT("after one byte", call(code + 128) & 0xff, (i + 1) & 0xff);
	}
	return 0;
}

/* Mapped to run, written by the kernel: into the file, and into a private copy through /proc/self/mem. */
static const char *written_through(void)
{
	uint8_t function[RETURNS_SIZE];
	long file = SYS2(memfd_create, "code", 0);
	EXPECT("ftruncate", SYS2(ftruncate, file, PAGE), 0);
	uint8_t *code = map(0, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file);
	uint8_t *private = map(0, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file);
	for (int i = 0; i < ROUNDS; i++) {
		put_function(function, i);
		EXPECT("pwrite", write_at(file, function, sizeof function, 16), sizeof function);
		EXPECT("the function", call(code + 16), i);
		EXPECT("the private mapping", call(private + 16), i);
	}
	long memory = SYS4(openat, AT_FDCWD, "/proc/self/mem", O_RDWR, 0);
	if (memory < 0)
		return "/proc/self/mem cannot be opened";
	for (int i = 1000; i < 1000 + ROUNDS; i++) {
		put_function(function, i);
		long written = write_at(memory, function, sizeof function, (unsigned long)private + 16);
		EXPECT("writing /proc/self/mem", written, sizeof function);
		EXPECT("the private function", call(private + 16), i);
		EXPECT("the shared function", call(code + 16), ROUNDS - 1);
	}
	return 0;
}

/* Never writable and executable at once. */
static const char *write_xor_execute(void)
{
	uint8_t *code = pages(PAGE, PROT_READ | PROT_WRITE);
	for (int i = 0; i < ROUNDS; i++) {
		EXPECT("mprotect", SYS3(mprotect, code, PAGE, PROT_READ | PROT_WRITE), 0);
		put_function(code, i);
		EXPECT("mprotect", SYS3(mprotect, code, PAGE, PROT_READ | PROT_EXEC), 0);
		EXPECT("the function", call(code), i);
	}
	return 0;
}

/* movb $7, 1f+1(code); 1: mov $0, %eax; ret: the store changes the instruction after it. */
static const char *self_modifying(void)
{
	static const uint8_t head[] = {
#ifdef __x86_64__
		0xc6, 0x05, 0x01, 0x00, 0x00, 0x00, 7, /* relative to the next instruction */
#else
		0xc6, 0x05, 0x00, 0x00, 0x00, 0x00, 7, /* absolute: filled in below */
#endif
	};
	uint8_t *code = writable_code();
	memcpy(code, head, sizeof head);
#ifndef __x86_64__
	uint32_t target = (uint32_t)code + sizeof head + 1;
	memcpy(code + 2, &target, sizeof target);
#endif
	for (int i = 1; i < ROUNDS; i++) {
		put_function(code + sizeof head, 0);
		code[6] = i;
		EXPECT("what the next instruction gave", call(code), i);
	}
	return 0;
}

/* An instruction across the end of a page, of which only the second page's part changes. */
static const char *across_pages(void)
{
	uint8_t *code = writable_code(), *at = code + PAGE - 3;
	put_function(at, 0x00020304);
	for (int i = 0; i < ROUNDS; i++) {
		code[PAGE + 1] = i;
		EXPECT("the function", call(at), (i & 0xff) << 24 | 0x00020304);
	}
	EXPECT("mprotect", SYS3(mprotect, code + PAGE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
	EXPECT("the function", call(at), ((ROUNDS - 1) & 0xff) << 24 | 0x00020304);
	return 0;
}

/* A process changes its copy of a function; its parent's stays. */
static const char *own_copies(void)
{
	uint8_t *code = writable_code();
	put_function(code, 1);
	for (int i = 0; i < 20; i++) {
		EXPECT("the function", call(code), i + 1);
		long child = SYS0(fork);
		if (child == 0) {
			put_function(code, 100 + i);
			quit(call(code));
		}
		EXPECT("the child's function", wait_for(child), EXITED(100 + i));
		EXPECT("the parent's function", call(code), i + 1);
		put_function(code, i + 2);
	}
	return 0;
}

/* Other code at the same address, and the same code at another. */
static const char *remapped(void)
{
	uint8_t *code = writable_code();
	for (int i = 0; i < 50; i++) {
		put_function(code, i);
		EXPECT("the function", call(code), i);
		uint8_t *place = pages(2 * PAGE, PROT_NONE);
		long moved = syscall7(__NR_mremap, (long)code, 2 * PAGE, 2 * PAGE, 3, (long)place, 0);
		EXPECT("mremap", moved, (long)place);
		EXPECT("the moved function", call(place), i);
		uint8_t *other = map(code, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1);
		EXPECT("mmap", (long)other, (long)code);
		put_function(code, -i);
		EXPECT("another function there", call(code), -i);
		EXPECT("munmap", SYS2(munmap, place, 2 * PAGE), 0);
	}
	return 0;
}

const struct check code_checks[] = {
	{ "dual-mapped code", dual_mapped },
	{ "written-through code", written_through },
	{ "write xor execute", write_xor_execute },
	{ "self-modifying code", self_modifying },
	{ "code across pages", across_pages },
	{ "code of two processes", own_copies },
	{ "remapped code", remapped },
	{ 0, 0 },
};
