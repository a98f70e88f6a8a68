// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A driver with macro-declared probes: the device /dev/probed. What is written to it reaches a probe; reading it tells whether
 * the driver sees that this probe is enabled. Probes are in its start and in its end, too.
 */
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include <trapline/probe.h>

static unsigned int writes;

/* The pointer that the macro in `probed_take` declares. */
extern void *request_pointer __asm__("systemtap_probe_nslp__request") __attribute__((visibility("hidden")));

/* Two points of one probe, each with all types of arguments. */
noinline void probed_take(const char *text, size_t length)
{
	long long sum = 0x1234567890LL;
	size_t i;

	for (i = 0; i < length; i++)
		sum += text[i];
	TRAPLINE_PROBE4(n, s, l, p, request, length, text, sum, &writes);
	if (length > 4)
		TRAPLINE_PROBE4(n, s, l, p, request, -1, "long", -sum, text);
	writes++;
}

static ssize_t probed_write(struct file *file, const char __user *from, size_t size, loff_t *pos)
{
	char text[32] = "";
	size_t length = min(size, sizeof(text) - 1);

	if (copy_from_user(text, from, length))
		return -EFAULT;
	probed_take(text, length);
	return size;
}

static ssize_t probed_read(struct file *file, char __user *to, size_t size, loff_t *pos)
{
	char text[48];
	int length = scnprintf(text, sizeof(text), "request is %s, %u writes\n",
			       READ_ONCE(request_pointer) ? "on" : "off", writes);

	return simple_read_from_buffer(to, size, pos, text, length);
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.read = probed_read,
	.write = probed_write,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "probed",
	.fops = &operations,
};

static int __init probed_init(void)
{
	TRAPLINE_PROBE_ns(started, writes, THIS_MODULE->name);
	return misc_register(&device);
}

static void __exit probed_exit(void)
{
	misc_deregister(&device);
	TRAPLINE_PROBE_n(stopped, writes);
}

module_init(probed_init);
module_exit(probed_exit);
MODULE_DESCRIPTION("A driver with macro-declared probes");
MODULE_LICENSE("GPL");
