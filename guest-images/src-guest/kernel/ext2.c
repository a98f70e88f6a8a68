/* SPDX-License-Identifier: GPL-2.0-or-later
 * As much of a file system as one growing file needs: blocks on a disk that is memory, twelve of them
 * named by the inode, the others by an indirect block. */
#include "driver_trace.h"
#include "kernel.h"

#define BLOCK_SIZE 1024
#define BLOCKS 64 /* block 0 is the superblock's */
#define DIRECT 12

struct ext2_inode {
	u32 number, size, blocks;
	u32 block[DIRECT + 1]; /* 0: a hole; the last names the indirect block */
};

struct file {
	struct ext2_inode *inode;
	u32 position;
};

TRACE_HANDLE(ext2_trace, "ext2", 16384, DTI_LEVEL_DEFAULT, 0);

static u8 disk[BLOCKS][BLOCK_SIZE] __attribute__((aligned(16)));
static u8 block_used[BLOCKS] = { 1 };
static struct ext2_inode log_inode = { .number = 12 };
static struct file log_file = { .inode = &log_inode };

static u32 ext2_new_block(struct ext2_inode *inode)
{
	for (u32 i = 0; i < BLOCKS; i++)
		if (!block_used[i]) {
			block_used[i] = 1;
			inode->blocks++;
			return i;
		}
	return 0;
}

/* The disk's block for the file's block `n`, allocated if need be; 0 when the disk or the inode is full. */
PROBE_POINT u32 ext2_get_block(struct ext2_inode *inode, u32 n)
{
	u32 *entry = &inode->block[n];

	if (n >= DIRECT + BLOCK_SIZE / sizeof(u32))
		return 0;
	if (n >= DIRECT) {
		u32 *indirect = &inode->block[DIRECT];

		if (!*indirect)
			*indirect = ext2_new_block(inode);
		if (!*indirect)
			return 0;
		entry = (u32 *)disk[*indirect] + (n - DIRECT);
	}
	if (!*entry)
		*entry = ext2_new_block(inode);
	return *entry;
}

/* Appends; less than `count` when the disk is full. The buffer is the user's: reading it may fault. */
PROBE_POINT long ext2_file_write(struct file *file, const char *buffer, u32 count)
{
	u32 done = 0;

	counters.file_writes++;
	SDT_SITE(sdt_site_2, SDT_CALL, counters.sdt[2]);
	TRACE(ext2_trace, DTI_LEVEL_INFO, "write %u bytes at %u", count, file->position);
	while (done < count) {
		u32 offset = file->position % BLOCK_SIZE, n = BLOCK_SIZE - offset;
		u32 block = ext2_get_block(file->inode, file->position / BLOCK_SIZE);

		if (!block)
			break;
		if (n > count - done)
			n = count - done;
		memcpy(disk[block] + offset, buffer + done, n);
		file->position += n;
		done += n;
	}
	if (file->position > file->inode->size)
		file->inode->size = file->position;
	return done;
}

long file_write(const char *buffer, u32 count)
{
	return ext2_file_write(&log_file, buffer, count);
}

/* The file's checksum, read back block by block. */
u32 file_sum(void)
{
	u32 hash = FNV1A_START;

	for (u32 at = 0; at < log_inode.size; at += BLOCK_SIZE) {
		u32 block = ext2_get_block(&log_inode, at / BLOCK_SIZE);
		u32 n = log_inode.size - at;

		hash = fnv1a_more(hash, disk[block], disk[block] + (n < BLOCK_SIZE ? n : BLOCK_SIZE));
	}
	printk("ext2: inode %u has %u bytes in %u blocks\n", log_inode.number, log_inode.size,
	       log_inode.blocks);
	return hash;
}
