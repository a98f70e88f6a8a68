// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The Driver Tracing Interface for Linux: the functions of dti.h on relay and debugfs.
 *
 * A channel NAME is the folder dti/NAME of debugfs, with the files data0, data1 and so on, which are relay's own, `level`, and
 * `reset_consumed`. Its head, struct dti_info, tells a reader of memory where the records are; it has no other purpose here.
 */
#include <linux/cpumask.h>
#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/hardirq.h>
#include <linux/io.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/relay.h>
#include <linux/slab.h>
#include <linux/timex.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include <trapline/dti_ring.h>

static struct dentry *dti_root;
static DEFINE_RAW_SPINLOCK(early_lock);

SHARED uint64_t now(void)
{
	return get_cycles();
}

SHARED uint32_t clock_kind(void)
{
	return boot_cpu_has(X86_FEATURE_TSC) ? DTI_CLOCK_TSC : 0;
}

SHARED uint64_t physical_of(const void *page)
{
	return page_to_phys(vmalloc_to_page(page));
}

SHARED uint32_t early_pages(uintptr_t *start, uintptr_t end)
{
	uintptr_t first = ALIGN(*start, 8);

	if (first / PAGE_SIZE == (end - 1) / PAGE_SIZE) {
		*start = first;
		return 0;
	}
	*start = PAGE_ALIGN(*start);
	return *start < end ? DIV_ROUND_UP(end - *start, PAGE_SIZE) : 0;
}

SHARED unsigned int cpus_of_kernel(void)
{
	return nr_cpu_ids;
}

SHARED uint8_t kind_of_channels(void)
{
	return DTI_KIND_RELAY;
}

SHARED unsigned int text_of(char text[DTI_PRINTK_MAX], const char *fmt, va_list args)
{
	return vscnprintf(text, DTI_PRINTK_MAX, fmt, args);
}

EXPORT_SYMBOL_GPL(__dti_register);
EXPORT_SYMBOL_GPL(dti_register);
EXPORT_SYMBOL_GPL(dti_event_raw);
EXPORT_SYMBOL_GPL(dti_printk_raw);
EXPORT_SYMBOL_GPL(dti_handle_printk);
EXPORT_SYMBOL_GPL(dti_set_level);
EXPORT_SYMBOL_GPL(dti_handle_cleanup);

static struct dti_relay *relay_of(const struct dti_info *info)
{
	return (struct dti_relay *)((char *)info + chan_offset(info->pages));
}

/* As relay_write does, but so that the record is complete at each instruction or known not to be. */
SHARED int append_to_channel(struct dti_info *info, uint64_t time, const void *data, size_t len)
{
	struct dti_relay_cpu *state = &relay_of(info)->cpu[smp_processor_id()];
	struct rchan_buf *buf = *this_cpu_ptr(info->chan->buf);
	size_t bytes = sizeof(struct event_halves) + len;
	struct event_halves *event;

	if (!buf)
		return -1;
	if (len > 0xffff || bytes > info->chan->subbuf_size) {
		state->too_long++;
		return -1;
	}
	if (state->reserving) {
		state->nested++;
		return -1;
	}
	STORE(state->reserving, 1);
	if (buf->offset + bytes > info->chan->subbuf_size && !relay_switch_subbuf(buf, bytes)) {
		STORE(state->reserving, 0);
		return -1;
	}
	event = buf->data + buf->offset;
	begin_event(event, bytes);
	STORE(buf->offset, buf->offset + bytes);
	if (!time)
		time = now();
	STORE(state->reserving, 0);
	complete_event(event, time, data, len);
	return 0;
}

noinline int dti_log(struct dti_info *trace, int prio, const void *buf, size_t len)
{
	unsigned long flags;
	int result;

	if (!trace || !recorded_at(&trace->mark, prio))
		return -1;
	local_irq_save(flags);
	if (trace->mark.kind == DTI_KIND_EARLY)
		result = append(trace, 0, 0, buf, len);
	else
		result = append_to_channel(trace, 0, buf, len);
	local_irq_restore(flags);
	return result;
}
EXPORT_SYMBOL_GPL(dti_log);

int dti_exception(struct dti_info *trace, int prio, const void *buf, size_t len)
{
	struct dti_relay_cpu *state;
	unsigned long flags;
	int result;

	local_irq_save(flags);
	result = dti_log(trace, prio, buf, len);
	state = result ? NULL : &relay_of(trace)->cpu[smp_processor_id()];
	if (state && !state->reserving) {
		STORE(state->reserving, 1);
		relay_switch_subbuf(*this_cpu_ptr(trace->chan->buf), 0);
		STORE(state->reserving, 0);
	}
	local_irq_restore(flags);
	return result;
}
EXPORT_SYMBOL_GPL(dti_exception);

/* Overwriting is the only mode. */
static int subbuf_start(struct rchan_buf *buf, void *subbuf, void *prev_subbuf, size_t prev_padding)
{
	return 1;
}

static uint32_t ring_pages(const struct dti_mark *shape)
{
	return pages_of((uint64_t)shape->n_subbufs * shape->subbuf_size);
}

/* Tells readers of memory of a new ring: relay makes one for each CPU that comes online. */
static void publish(struct dti_info *info, unsigned int cpu, struct rchan_buf *buf)
{
	struct dti_relay_cpu *state = &relay_of(info)->cpu[cpu];
	uint32_t pages = ring_pages(&info->mark), first = info->pages - (info->mark.cpus - cpu) * pages;

	for (uint32_t page = 0; page < pages; page++)
		info->physical[first + page] = page_to_phys(buf->page_array[page]);
	state->start = (uintptr_t)buf->start;
	state->padding = virt_to_phys(buf->padding);
	smp_wmb();
	state->buf = virt_to_phys(buf);
}

static struct dentry *create_buf_file(const char *filename, struct dentry *parent, umode_t mode, struct rchan_buf *buf,
				      int *is_global)
{
	unsigned int cpu;

	if (sscanf(filename, "data%u", &cpu) == 1) {
		struct dti_info *info = buf->chan->private_data;

		if (cpu < info->mark.cpus)
			publish(info, cpu, buf);
	}
	return debugfs_create_file(filename, mode, parent, buf, &relay_file_operations);
}

static int remove_buf_file(struct dentry *dentry)
{
	debugfs_remove(dentry);
	return 0;
}

static const struct rchan_callbacks relay_callbacks = {
	.subbuf_start = subbuf_start,
	.create_buf_file = create_buf_file,
	.remove_buf_file = remove_buf_file,
};

static ssize_t level_read(struct file *file, char __user *to, size_t size, loff_t *pos)
{
	const struct dti_info *info = file->private_data;
	char text[16];
	int len = scnprintf(text, sizeof(text), "%d\n", LOAD(info->mark.level));

	return simple_read_from_buffer(to, size, pos, text, len);
}

static ssize_t level_write(struct file *file, const char __user *from, size_t size, loff_t *pos)
{
	struct dti_info *info = file->private_data;
	struct dti_mark *handle = (struct dti_mark *)info->mark.handle;
	int level, error = kstrtoint_from_user(from, size, 10, &level);

	if (error)
		return error;
	if (level < DTI_LEVEL_OFF || level > DTI_LEVEL_MAX)
		return -EINVAL;
	dti_set_level(info, level);
	if (handle)
		set_level(handle, level);
	return size;
}

static const struct file_operations level_operations = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = level_read,
	.write = level_write,
	.llseek = default_llseek,
};

/* Makes all records readable again. */
static ssize_t reset_write(struct file *file, const char __user *from, size_t size, loff_t *pos)
{
	struct dti_info *info = file->private_data;
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		struct rchan_buf *buf = *per_cpu_ptr(info->chan->buf, cpu);
		size_t n = info->chan->n_subbufs, produced;

		if (!buf)
			continue;
		/* What relay's own reading is under. */
		inode_lock(d_inode(buf->dentry));
		produced = READ_ONCE(buf->subbufs_produced);
		buf->subbufs_consumed = produced >= n ? produced - n + 1 : 0;
		buf->bytes_consumed = 0;
		inode_unlock(d_inode(buf->dentry));
	}
	return size;
}

static const struct file_operations reset_operations = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = reset_write,
	.llseek = noop_llseek,
};

/* A head that readers do not see yet. */
static struct dti_info *make_head(const char *name, const struct dti_mark *shape)
{
	uint64_t cpus = sizeof(struct dti_relay) + shape->cpus * sizeof(struct dti_relay_cpu);
	uint64_t data = (uint64_t)shape->cpus * ring_pages(shape), pages = data, head = 0;
	struct dti_info *info;

	do {
		pages = data + head;
		head = pages_of(chan_offset(pages) + cpus);
	} while (data + head > pages && pages <= MAX_PAGES);
	if (pages > MAX_PAGES)
		return NULL;
	info = alloc_pages_exact(head * PAGE_SIZE, GFP_KERNEL | __GFP_ZERO);
	if (!info)
		return NULL;
	info->pages = pages;
	for (uint32_t page = 0; page < head; page++)
		info->physical[page] = virt_to_phys(info) + (phys_addr_t)page * PAGE_SIZE;
	fill_mark(info, name, shape);
	*relay_of(info) = (struct dti_relay){
		.subbuf_size = offsetof(struct rchan, subbuf_size),
		.n_subbufs = offsetof(struct rchan, n_subbufs),
		.start = offsetof(struct rchan_buf, start),
		.data = offsetof(struct rchan_buf, data),
		.offset = offsetof(struct rchan_buf, offset),
		.produced = offsetof(struct rchan_buf, subbufs_produced),
		.consumed = offsetof(struct rchan_buf, subbufs_consumed),
		.chan = offsetof(struct rchan_buf, chan),
		.padding = offsetof(struct rchan_buf, padding),
		.bytes_consumed = offsetof(struct rchan_buf, bytes_consumed),
	};
	return info;
}

static void free_head(struct dti_info *info)
{
	uint32_t head = info->pages - info->mark.cpus * ring_pages(&info->mark);

	free_pages_exact(info, head * PAGE_SIZE);
}

SHARED struct dti_info *make(const char *name, const struct dti_mark *shape)
{
	struct dti_info *info;
	struct dentry *root;

	if (!is_possible(name, shape) || strchr(name, '/') || name[0] == '.')
		return NULL;
	root = debugfs_create_dir(name, dti_root);
	if (IS_ERR(root))
		return NULL;
	info = make_head(name, shape);
	if (!info)
		goto remove;
	/* relay_open makes the rings, and calls create_buf_file for each. */
	info->chan = relay_open("data", root, shape->subbuf_size, shape->n_subbufs, &relay_callbacks, info);
	if (!info->chan)
		goto free;
	relay_of(info)->rchan = virt_to_phys(info->chan);
	debugfs_create_file("level", 0600, root, info, &level_operations);
	debugfs_create_file("reset_consumed", 0200, root, info, &reset_operations);
	return info;
free:
	free_head(info);
remove:
	debugfs_remove(root);
	return NULL;
}

void dti_unregister(struct dti_info *trace)
{
	struct dentry *root;

	if (!trace)
		return;
	STORE(trace->mark.kind, 0);
	root = trace->chan->parent;
	relay_close(trace->chan);
	debugfs_remove(root);
	free_head(trace);
}
EXPORT_SYMBOL_GPL(dti_unregister);

/* Whether the caller may sleep, which making a channel needs. */
static bool may_allocate(void)
{
	return preemptible() && !rcu_preempt_depth();
}

/* With interrupts off. An NMI may have come in the middle of another record. */
static bool lock_early(void)
{
	if (in_nmi())
		return raw_spin_trylock(&early_lock);
	raw_spin_lock(&early_lock);
	return true;
}

/* Makes the channel of a handle; another CPU may have done so meanwhile. */
static void bind(struct dti_handle *handle)
{
	struct dti_mark shape = shape_of(handle);
	struct dti_info *info;
	unsigned long flags;

	if (__atomic_exchange_n(&handle->binding, 1, __ATOMIC_ACQUIRE))
		return;
	info = LOAD(handle->info) ? NULL : make(handle->mark.name, &shape);
	if (info) {
		raw_spin_lock_irqsave(&early_lock, flags);
		set_level(&info->mark, handle->mark.level);
		give(handle, info);
		raw_spin_unlock_irqrestore(&early_lock, flags);
	}
	STORE(handle->binding, 0);
}

/* Writes to the early buffer, unless the channel is there by now. */
static int log_early(struct dti_handle *handle, int prio, const void *buf, size_t len)
{
	struct dti_info *info;
	unsigned long flags;
	int result = -1;

	local_irq_save(flags);
	if (lock_early()) {
		info = LOAD(handle->info);
		if (!info)
			info = early_of(handle);
		result = dti_log(info, prio, buf, len);
		raw_spin_unlock(&early_lock);
	}
	local_irq_restore(flags);
	return result;
}

int dti_handle_init(struct dti_handle *handle)
{
	if (!LOAD(handle->info))
		bind(handle);
	return LOAD(handle->info) ? 0 : -1;
}
EXPORT_SYMBOL_GPL(dti_handle_init);

int dti_handle_event(struct dti_handle *handle, int prio, const void *buf, size_t len)
{
	struct dti_info *info = LOAD(handle->info);

	if (!info) {
		if (!recorded_at(&handle->mark, prio))
			return -1;
		if (may_allocate())
			bind(handle);
		info = LOAD(handle->info);
	}
	return info ? dti_log(info, prio, buf, len) : log_early(handle, prio, buf, len);
}
EXPORT_SYMBOL_GPL(dti_handle_event);

void dti_handle_set_level(struct dti_handle *handle, int new_level)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&early_lock, flags);
	set_levels(handle, new_level);
	raw_spin_unlock_irqrestore(&early_lock, flags);
}
EXPORT_SYMBOL_GPL(dti_handle_set_level);

static int __init dti_init(void)
{
	dti_root = debugfs_create_dir("dti", NULL);
	return PTR_ERR_OR_ZERO(dti_root);
}

static void __exit dti_exit(void)
{
	debugfs_remove(dti_root);
}

module_init(dti_init);
module_exit(dti_exit);
MODULE_DESCRIPTION("Driver Tracing Interface");
MODULE_LICENSE("GPL");
