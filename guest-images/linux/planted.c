// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A driver with a mistake in its parser, for the fuzzer to find: the device /dev/planted takes messages of a small protocol.
 */
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#define MAGIC 0x5ca1ab1e
#define SLOTS 8

struct slot {
	u32 count;
	u64 sum;
};

static struct slot *table[SLOTS];
static struct slot slots[SLOTS];

/*
 * A message is the magic number, a version, then options: each a type, a length and its bytes. Option 1 selects a slot,
 * option 2 adds its bytes to it, option 3 closes it. The mistake that is planted here: option 2 after option 3 uses a slot that
 * is closed.
 */
noinline int planted_parse(const u8 *message, size_t length)
{
	unsigned int slot = 0;
	size_t at = 5, i;
	u32 magic;

	if (length < 8)
		return -EINVAL;
	memcpy(&magic, message, sizeof(magic));
	if (magic != MAGIC || message[4] != 3)
		return -EINVAL;
	for (i = 0; i < SLOTS; i++)
		table[i] = &slots[i];
	while (at + 2 <= length && message[at]) {
		size_t size = message[at + 1];
		const u8 *data = message + at + 2;

		if (at + 2 + size > length)
			return -EINVAL;
		switch (message[at]) {
		case 1:
			if (size != 1 || data[0] >= SLOTS)
				return -EINVAL;
			slot = data[0];
			break;
		case 2:
			table[slot]->count++;
			for (i = 0; i < size; i++)
				table[slot]->sum += data[i];
			break;
		case 3:
			if (size)
				return -EINVAL;
			table[slot] = NULL;
			break;
		default:
			return -EINVAL;
		}
		at += 2 + size;
	}
	return 0;
}

static ssize_t planted_write(struct file *file, const char __user *from, size_t size, loff_t *pos)
{
	u8 message[64];
	size_t length = min(size, sizeof(message));
	int error;

	if (copy_from_user(message, from, length))
		return -EFAULT;
	error = planted_parse(message, length);
	return error ? error : (ssize_t)size;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.write = planted_write,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "planted",
	.fops = &operations,
};

module_misc_device(device);
MODULE_DESCRIPTION("A driver with a mistake");
MODULE_LICENSE("GPL");
