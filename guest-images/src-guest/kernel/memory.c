/* SPDX-License-Identifier: GPL-2.0-or-later
 * Physical pages and the kernel's heap. */
#include "kernel.h"

#define MAX_PAGES 1024 /* 4 MiB is more than all tasks need */
#define ARENA_SIZE 32768
#define BLOCK_FREE 0x66726565
#define BLOCK_USED 0x75736564

u32 nr_free_pages;

static word page_stack[MAX_PAGES];

/* The arena is one run of blocks, each a header and its bytes; free neighbours are merged. It lies
 * in .bss so that what kmalloc answers depends on nothing but the calls. */
struct block {
	u32 mark;
	u32 size; /* bytes after the header */
};

static u8 arena[ARENA_SIZE] __attribute__((aligned(16)));

void memory_init(word first_free, word end)
{
	struct block *all = (struct block *)arena;
	word page = (first_free + PAGE_SIZE - 1) & -PAGE_SIZE;
	u32 pages = 0;

	while (pages < MAX_PAGES && page + (pages + 1) * PAGE_SIZE <= end)
		pages++;
	/* Stacked so that the lowest page is handed out first. */
	for (u32 i = 0; i < pages; i++)
		page_stack[i] = page + (pages - 1 - i) * PAGE_SIZE;
	nr_free_pages = pages;
	all->mark = BLOCK_FREE;
	all->size = ARENA_SIZE - sizeof(*all);
}

PROBE_POINT word get_free_page(void)
{
	word page;

	if (!nr_free_pages)
		return 0;
	counters.pages_taken++;
	page = page_stack[--nr_free_pages];
	memset(virt(page), 0, PAGE_SIZE);
	return page;
}

PROBE_POINT void free_page(word page)
{
	counters.pages_given++;
	page_stack[nr_free_pages++] = page;
}

static struct block *next_block(struct block *block)
{
	struct block *next = (struct block *)((u8 *)(block + 1) + block->size);

	return (u8 *)next < arena + ARENA_SIZE ? next : 0;
}

static void *take(struct block *block, u32 size)
{
	u32 rest = block->size - size;

	if (rest >= sizeof(*block) + 16) {
		struct block *tail = (struct block *)((u8 *)(block + 1) + size);

		tail->mark = BLOCK_FREE;
		tail->size = rest - sizeof(*tail);
		block->size = size;
	}
	block->mark = BLOCK_USED;
	return block + 1;
}

/* First fit. 0 when size is 0 or nothing is large enough. */
PROBE_POINT void *kmalloc(word size)
{
	struct block *block = (struct block *)arena;

	counters.kmallocs++;
	SDT_SITE(sdt_site_4, SDT_NOP2, counters.sdt[4]);
	if (!size || size > ARENA_SIZE)
		return 0;
	size = (size + 7) & ~7u;
	for (; block; block = next_block(block))
		if (block->mark == BLOCK_FREE && block->size >= size)
			return take(block, size);
	return 0;
}

/* -1 for anything that kmalloc did not give or that is free already. */
PROBE_POINT int kfree(void *address)
{
	struct block *block = (struct block *)arena, *before = 0, *after;

	counters.kfrees++;
	while (block && (void *)(block + 1) != address) {
		before = block;
		block = next_block(block);
	}
	if (!block || block->mark != BLOCK_USED)
		return -1;
	block->mark = BLOCK_FREE;
	after = next_block(block);
	if (after && after->mark == BLOCK_FREE)
		block->size += sizeof(*after) + after->size;
	if (before && before->mark == BLOCK_FREE)
		before->size += sizeof(*block) + block->size;
	return 0;
}
