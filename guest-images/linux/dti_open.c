// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Wraps a path of the kernel that has no tracing of its own: records each open of a file, its name and its result.
 */
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/sched.h>

#include <trapline/dti.h>

#define NAME 64

/* What is recorded of an open; the name follows. */
struct opened {
	int32_t result; /* 0, or an error */
	uint32_t pid;
} __attribute__((packed));

struct opening {
	char name[NAME];
};

static DEFINE_DTI_HANDLE(trace, "open", 64 * 1024, DTI_LEVEL_INFO, NULL);

/* do_filp_open(int dfd, struct filename *pathname, const struct open_flags *op) */
static int entered(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct opening *opening = (struct opening *)instance->data;
	const struct filename *path = (const struct filename *)regs_get_kernel_argument(regs, 1);

	strscpy(opening->name, path->name, sizeof(opening->name));
	return 0;
}

static int returned(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	const struct opening *opening = (const struct opening *)instance->data;
	const void *file = (const void *)regs_return_value(regs);
	struct {
		struct opened opened;
		char name[NAME];
	} __packed record;
	size_t len = strlen(opening->name);

	record.opened.result = PTR_ERR_OR_ZERO(file);
	record.opened.pid = current->pid;
	memcpy(record.name, opening->name, len);
	dti_event(trace, IS_ERR(file) ? DTI_LEVEL_NOTICE : DTI_LEVEL_INFO, &record, sizeof(record.opened) + len);
	return 0;
}

static struct kretprobe probe = {
	.kp.symbol_name = "do_filp_open",
	.entry_handler = entered,
	.handler = returned,
	.data_size = sizeof(struct opening),
	.maxactive = 16,
};

static int __init open_init(void)
{
	int error = INIT_DTI_HANDLE(trace);

	if (error)
		return -ENOMEM;
	error = register_kretprobe(&probe);
	if (error)
		CLEANUP_DTI_HANDLE(trace);
	return error;
}

static void __exit open_exit(void)
{
	unregister_kretprobe(&probe);
	CLEANUP_DTI_HANDLE(trace);
}

module_init(open_init);
module_exit(open_exit);
MODULE_DESCRIPTION("Traces opens of files");
MODULE_LICENSE("GPL");
