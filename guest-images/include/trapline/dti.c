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

int dti_event_raw(struct dti_info *trace, int prio, const void *buf, size_t len)
{
	return dti_log(trace, prio, buf, len);
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

static int log_text(struct dti_info *info, int prio, const char *fmt, va_list args)
{
	char text[DTI_PRINTK_MAX];

	if (!info || !recorded_at(&info->mark, prio))
		return -1;
	return dti_log(info, prio, text, dti_kernel.printk(text, sizeof(text), fmt, args));
}

int dti_printk_raw(struct dti_info *trace, int prio, const char *fmt, ...)
{
	va_list args;
	int result;

	va_start(args, fmt);
	result = log_text(trace, prio, fmt, args);
	va_end(args);
	return result;
}

void dti_set_level(struct dti_info *trace, int new_level)
{
	set_level(&trace->mark, new_level);
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

/* A channel that readers do not see yet. */
static struct dti_info *make(const char *name, const struct dti_mark *shape)
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

struct dti_info *__dti_register(const char *name, uint32_t subbuf_size, uint32_t n_subbufs)
{
	struct dti_mark shape = {
		.cpus = dti_kernel.cpus,
		.subbuf_size = subbuf_size,
		.n_subbufs = n_subbufs,
		.level = DTI_LEVEL_DEFAULT,
	};
	struct dti_info *info = make(name, &shape);

	if (info)
		STORE(info->mark.kind, DTI_KIND_CHANNEL);
	return info;
}

struct dti_info *dti_register(const char *name, int size_in_k)
{
	if (size_in_k <= 0 || size_in_k > (int)(MAX_SUBBUF / 1024))
		return NULL;
	return __dti_register(name, (uint32_t)size_in_k * 1024 / REGISTER_SUBBUFS, REGISTER_SUBBUFS);
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

/* Appends the records of an early buffer, with interrupts off. */
static void take_in(const struct dti_info *info, const struct dti_info *early)
{
	struct dti_rchan_buf *buf = buf_of(early, 0);

	buf->consumed = oldest(early, buf);
	buf->consumed_bytes = 0;
	for (;;) {
		const struct event_halves *event = next_unread(early, buf);

		if (!event)
			return;
		append(info, 0, (uint64_t)event->high << 32 | event->low, event + 1, event->len);
		buf->consumed_bytes += sizeof(*event) + event->len;
	}
}

/* Makes the channel of a handle, with interrupts off. Only CPU 0 writes to early buffers, so only CPU 0 moves them. */
static struct dti_info *bind(struct dti_handle *handle)
{
	struct dti_mark shape = {
		.cpus = dti_kernel.cpus,
		.subbuf_size = handle->bytes / REGISTER_SUBBUFS,
		.n_subbufs = REGISTER_SUBBUFS,
		.level = handle->mark.level,
		.handle = handle->mark.self,
	};
	struct dti_info *info;

	if (handle->early_used && dti_kernel.cpu())
		return NULL;
	info = make(handle->mark.name, &shape);
	if (!info)
		return NULL;
	if (handle->early_used)
		take_in(info, early_of(handle));
	/* From here on, readers see the channel, and no longer the buffer. */
	STORE(info->mark.kind, DTI_KIND_CHANNEL);
	if (handle->early_used)
		STORE(early_of(handle)->mark.kind, 0);
	handle->early_used = 0;
	STORE(handle->info, info);
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

void dti_handle_cleanup(struct dti_handle *handle)
{
	struct dti_info *info = LOAD(handle->info);

	STORE(handle->info, NULL);
	dti_unregister(info);
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

int dti_handle_printk(struct dti_handle *handle, int prio, const char *fmt, ...)
{
	struct dti_info *info = LOAD(handle->info);
	va_list args;
	int result;

	if (!info) {
		if (!recorded_at(&handle->mark, prio))
			return -1;
		info = info_of(handle);
	}
	va_start(args, fmt);
	result = log_text(info, prio, fmt, args);
	va_end(args);
	return result;
}

void dti_handle_set_level(struct dti_handle *handle, int new_level)
{
	struct dti_info *info = LOAD(handle->info);

	set_level(&handle->mark, new_level);
	if (info)
		set_level(&info->mark, new_level);
	else if (handle->early_used)
		set_level(&early_of(handle)->mark, new_level);
}
