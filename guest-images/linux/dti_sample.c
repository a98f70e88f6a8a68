// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A driver that traces from its first instruction on: the device /dev/dti_sample, which takes what is written to it, and a
 * timer. The first records come where memory cannot be allocated, and go to the early buffer.
 */
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/kernel.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include <trapline/dti.h>

#define TICKS 20

static DTI_EARLY_BUFFER(early, 2 * DTI_PAGE_SIZE);
static DEFINE_DTI_HANDLE(trace, "sample", 16 * 1024, DTI_LEVEL_INFO, early);

static struct hrtimer timer;
static unsigned int ticks;

/* In an interrupt. */
static enum hrtimer_restart tick(struct hrtimer *which)
{
	dti_printk(trace, DTI_LEVEL_DEBUG, "tick %u", ++ticks);
	if (ticks >= TICKS)
		return HRTIMER_NORESTART;
	hrtimer_forward_now(which, ms_to_ktime(1));
	return HRTIMER_RESTART;
}

static ssize_t sample_write(struct file *file, const char __user *from, size_t size, loff_t *pos)
{
	char data[512];
	size_t len = min(size, sizeof(data));

	if (copy_from_user(data, from, len))
		return -EFAULT;
	dti_printk(trace, DTI_LEVEL_INFO, "write of %zu bytes", size);
	dti_event(trace, DTI_LEVEL_DEBUG, data, len);
	return size;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.write = sample_write,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "dti_sample",
	.fops = &operations,
};

static int __init sample_init(void)
{
	int error;

	preempt_disable();
	dti_printk(trace, DTI_LEVEL_NOTICE, "sample: begin");
	for (int step = 1; step <= 3; step++)
		dti_printk(trace, DTI_LEVEL_INFO, "sample: early step %d", step);
	preempt_enable();

	error = misc_register(&device);
	if (error)
		return error;
	INIT_DTI_HANDLE(trace);
	dti_printk(trace, DTI_LEVEL_NOTICE, "sample: device %d:%d", 10, device.minor);
	hrtimer_init(&timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	timer.function = tick;
	hrtimer_start(&timer, ms_to_ktime(1), HRTIMER_MODE_REL);
	return 0;
}

static void __exit sample_exit(void)
{
	hrtimer_cancel(&timer);
	misc_deregister(&device);
	CLEANUP_DTI_HANDLE(trace);
}

module_init(sample_init);
module_exit(sample_exit);
MODULE_DESCRIPTION("A driver that traces");
MODULE_LICENSE("GPL");
