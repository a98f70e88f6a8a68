/* The Driver Tracing Interface for any kernel: see dti.h. */
#include <trapline/dti_ring.h>

SHARED uint64_t now(void)
{
	return dti_kernel.clock();
}

SHARED uint32_t clock_kind(void)
{
	return dti_kernel.clock_kind;
}

SHARED uint64_t physical_of(const void *page)
{
	return dti_kernel.physical(page);
}

/* It is a part of the kernel's image, which is in one piece. */
SHARED uint32_t early_pages(uintptr_t *start, uintptr_t end)
{
	(void)end;
	*start = (*start + 7) & ~(uintptr_t)7;
	return 0;
}

SHARED unsigned cpus_of_kernel(void)
{
	return dti_kernel.cpus;
}

SHARED uint8_t kind_of_channels(void)
{
	return DTI_KIND_CHANNEL;
}

SHARED int append_to_channel(struct dti_info *info, uint64_t time, const void *data, size_t len)
{
	return append(info, dti_kernel.cpu(), time, data, len);
}

SHARED unsigned text_of(char text[DTI_PRINTK_MAX], const char *fmt, va_list args)
{
	return dti_kernel.printk(text, DTI_PRINTK_MAX, fmt, args);
}

__attribute__((noinline)) int dti_log(struct dti_info *trace, int prio, const void *buf, size_t len)
{
	unsigned long flags;
	unsigned cpu;
	int result = -1;

	if (!trace || !recorded_at(&trace->mark, prio))
		return -1;
	flags = dti_kernel.irq_save();
	cpu = dti_kernel.cpu();
	if (cpu < trace->mark.cpus)
		result = append(trace, cpu, 0, buf, len);
	dti_kernel.irq_restore(flags);
	return result;
}

int dti_exception(struct dti_info *trace, int prio, const void *buf, size_t len)
{
	unsigned long flags = dti_kernel.irq_save();
	int result = dti_log(trace, prio, buf, len);
	struct dti_rchan_buf *ring = result ? NULL : buf_of(trace, dti_kernel.cpu());

	if (ring && !ring->reserving) {
		STORE(ring->reserving, 1);
		enter_next(trace, ring);
		STORE(ring->reserving, 0);
	}
	dti_kernel.irq_restore(flags);
	return result;
}

/* The pages of a channel: those of its head, whose list has all pages, and those of its sub-buffers. */
static uint32_t pages_of_channel(unsigned cpus, uint32_t subbuf_size, uint32_t n_subbufs)
{
	uint64_t data = pages_of((uint64_t)cpus * n_subbufs * subbuf_size), head = 0, pages;

	if (data > MAX_PAGES)
		return 0;
	do {
		pages = data + head;
		head = pages_of(head_bytes(cpus, n_subbufs, pages));
	} while (data + head > pages && pages <= MAX_PAGES);
	return pages <= MAX_PAGES ? pages : 0;
}

SHARED struct dti_info *make(const char *name, const struct dti_mark *shape)
{
	struct dti_info *info;
	uint32_t pages;
	uint64_t head;

	if (!is_possible(name, shape))
		return NULL;
	pages = pages_of_channel(shape->cpus, shape->subbuf_size, shape->n_subbufs);
	info = pages ? dti_kernel.allocate(pages) : NULL;
	if (!info)
		return NULL;
	info->pages = pages;
	for (uint32_t page = 0; page < pages; page++)
		info->physical[page] = dti_kernel.physical((char *)info + (size_t)page * DTI_PAGE_SIZE);
	head = pages_of(head_bytes(shape->cpus, shape->n_subbufs, pages)) * DTI_PAGE_SIZE;
	fill(info, name, shape, (char *)info + head);
	return info;
}

void dti_unregister(struct dti_info *trace)
{
	if (!trace)
		return;
	STORE(trace->mark.kind, 0);
	dti_kernel.free(trace, trace->pages);
}

size_t dti_read(struct dti_info *trace, unsigned cpu, void *to, size_t size)
{
	unsigned long flags;
	size_t read = 0;

	if (!trace || cpu >= trace->mark.cpus)
		return 0;
	flags = dti_kernel.irq_save();
	for (;;) {
		struct dti_rchan_buf *buf = buf_of(trace, cpu);
		const struct event_halves *event = next_unread(trace, buf);
		uint32_t index, bytes;

		if (!event)
			break;
		bytes = sizeof(*event) + event->len;
		if (bytes > size - read)
			break;
		index = ((const char *)event - (const char *)buf->start) / trace->chan->subbuf_size;
		copy((char *)to + read, event, bytes);
		/* Its CPU may have entered the sub-buffer meanwhile; then the copy is not a record. */
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (LOAD(buf->subbuf[index].sequence) != buf->consumed || !LOAD(buf->subbuf[index].used))
			continue;
		buf->consumed_bytes += bytes;
		read += bytes;
	}
	dti_kernel.irq_restore(flags);
	return read;
}

void dti_reset_consumed(struct dti_info *trace)
{
	unsigned long flags = dti_kernel.irq_save();

	for (unsigned cpu = 0; cpu < trace->mark.cpus; cpu++) {
		struct dti_rchan_buf *buf = buf_of(trace, cpu);

		buf->consumed = oldest(trace, buf);
		buf->consumed_bytes = 0;
	}
	dti_kernel.irq_restore(flags);
}

/* Makes the channel of a handle, with interrupts off. Only CPU 0 writes to early buffers, so only CPU 0 moves them. */
static struct dti_info *bind(struct dti_handle *handle)
{
	struct dti_mark shape = shape_of(handle);
	struct dti_info *info;

	if (handle->early_used && dti_kernel.cpu())
		return NULL;
	info = make(handle->mark.name, &shape);
	if (info)
		give(handle, info);
	return info;
}

/* Where a handle's records go: its channel, or before there can be one its early buffer. */
static struct dti_info *info_of(struct dti_handle *handle)
{
	struct dti_info *info = LOAD(handle->info);
	unsigned long flags;

	if (info)
		return info;
	flags = dti_kernel.irq_save();
	if (!__atomic_exchange_n(&handle->binding, 1, __ATOMIC_ACQUIRE)) {
		info = LOAD(handle->info);
		if (!info)
			info = bind(handle);
		if (!info)
			info = early_of(handle);
		STORE(handle->binding, 0);
	}
	dti_kernel.irq_restore(flags);
	return info;
}

int dti_handle_init(struct dti_handle *handle)
{
	info_of(handle);
	return LOAD(handle->info) ? 0 : -1;
}

int dti_handle_event(struct dti_handle *handle, int prio, const void *buf, size_t len)
{
	struct dti_info *info = LOAD(handle->info);

	if (!info) {
		if (!recorded_at(&handle->mark, prio))
			return -1;
		info = info_of(handle);
	}
	return dti_log(info, prio, buf, len);
}

void dti_handle_set_level(struct dti_handle *handle, int new_level)
{
	set_levels(handle, new_level);
}
