/* The Driver Tracing Interface for any kernel: see dti.h. */
#include <trapline/dti.h>

#define MAX_CPUS 256
#define MIN_SUBBUF 16
#define MAX_SUBBUF (16u << 20)
#define MAX_SUBBUFS 65536
#define MAX_PAGES 16384
#define REGISTER_SUBBUFS 8
#define EARLY_SUBBUFS 4

/* The order of stores is what makes memory consistent at each instruction. */
#define STORE(to, value) __atomic_store_n(&(to), (value), __ATOMIC_RELEASE)
#define LOAD(from) __atomic_load_n(&(from), __ATOMIC_ACQUIRE)

/* A record with the halves of its time, which are stored one after the other. */
struct event_halves {
	uint16_t len;
	uint32_t low, high;
} __attribute__((packed));

static void copy(void *to, const void *from, size_t n)
{
	__builtin_memcpy(to, from, n);
}

static struct rchan_buf *buf_of(const struct dti_info *info, unsigned cpu)
{
	size_t size = sizeof(struct rchan_buf) + info->chan->n_subbufs * sizeof(struct dti_subbuf);

	return (struct rchan_buf *)((char *)(info->chan + 1) + cpu * size);
}

static char *subbuf_of(const struct dti_info *info, const struct rchan_buf *buf, uint32_t index)
{
	return (char *)buf->start + (size_t)index * info->chan->subbuf_size;
}

/* Enters the next sub-buffer, in which the oldest records were. */
static void enter_next(const struct dti_info *info, struct rchan_buf *buf)
{
	uint32_t sequence = buf->subbuf[buf->current].sequence + 1;
	uint32_t next = (buf->current + 1) % info->chan->n_subbufs;

	STORE(buf->subbuf[next].used, 0);
	STORE(buf->subbuf[next].sequence, sequence);
	STORE(buf->current, next);
}

/* A place for a record of so many bytes, of which the header is there. */
static struct event_halves *reserve(const struct dti_info *info, struct rchan_buf *buf, uint32_t bytes)
{
	struct event_halves *event;
	struct dti_subbuf *subbuf;

	if (buf->subbuf[buf->current].used + bytes > info->chan->subbuf_size)
		enter_next(info, buf);
	subbuf = &buf->subbuf[buf->current];
	event = (struct event_halves *)(subbuf_of(info, buf, buf->current) + subbuf->used);
	event->len = bytes - sizeof(*event);
	event->low = 0;
	event->high = 0;
	STORE(subbuf->used, subbuf->used + bytes);
	return event;
}

/* Appends a record, with interrupts off. A time of 0 stands for now. */
static int append(const struct dti_info *info, unsigned cpu, uint64_t time, const void *data, size_t len)
{
	struct rchan_buf *buf = buf_of(info, cpu);
	struct event_halves *event;

	if (len > UINT16_MAX || sizeof(*event) + len > info->chan->subbuf_size) {
		buf->too_long++;
		return -1;
	}
	if (buf->reserving) {
		buf->nested++;
		return -1;
	}
	STORE(buf->reserving, 1);
	event = reserve(info, buf, sizeof(*event) + len);
	if (!time)
		time = dti_kernel.clock();
	STORE(buf->reserving, 0);
	copy(event + 1, data, len);
	/* A lower half of 0 would mean that the record is not complete. */
	if (!(uint32_t)time)
		time |= 1;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	event->high = time >> 32;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	event->low = (uint32_t)time;
	return 0;
}

static int recorded_at(const struct dti_mark *mark, int prio)
{
	return prio >= 0 && prio <= LOAD(mark->level);
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

	if (!result)
		enter_next(trace, buf_of(trace, dti_kernel.cpu()));
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

static void set_level(struct dti_mark *mark, int new_level)
{
	if (new_level >= DTI_LEVEL_OFF && new_level <= DTI_LEVEL_MAX)
		STORE(mark->level, new_level);
}

void dti_set_level(struct dti_info *trace, int new_level)
{
	set_level(&trace->mark, new_level);
}

/* The name's length, or 0 if it cannot be the name of a channel. */
static size_t name_length(const char *name)
{
	size_t n = 0;

	while (n < DTI_TRACENAME_LEN && name[n])
		n++;
	return n < DTI_TRACENAME_LEN ? n : 0;
}

/* Where struct rchan lies in a channel of so many pages. */
static size_t chan_offset(uint32_t pages)
{
	return offsetof(struct dti_info, physical) + pages * sizeof(uint64_t);
}

/* The bytes of a channel's head, with a list of so many pages. */
static uint64_t head_bytes(unsigned cpus, uint32_t n_subbufs, uint32_t pages)
{
	uint64_t buf = sizeof(struct rchan_buf) + (uint64_t)n_subbufs * sizeof(struct dti_subbuf);

	return chan_offset(pages) + sizeof(struct rchan) + cpus * buf;
}

static uint64_t pages_of(uint64_t bytes)
{
	return (bytes + DTI_PAGE_SIZE - 1) / DTI_PAGE_SIZE;
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

/* Everything but the kind. The first sub-buffer is at `data`, with those of all CPUs behind. */
static void fill(struct dti_info *info, const char *name, const struct dti_mark *shape, char *data)
{
	struct dti_mark *mark = &info->mark;

	copy(mark->dti, (const char[]){ '_', '_', 'D', 'T', 'I', '_', '_' }, sizeof(mark->dti));
	copy(mark->name, name, name_length(name));
	mark->version = DTI_VERSION;
	mark->word_size = sizeof(void *);
	mark->cpus = shape->cpus;
	mark->subbuf_size = shape->subbuf_size;
	mark->n_subbufs = shape->n_subbufs;
	mark->level = shape->level;
	mark->handle = shape->handle;
	mark->self = (uintptr_t)mark;
	info->chan = (struct rchan *)((char *)info + chan_offset(info->pages));
	info->chan->subbuf_size = shape->subbuf_size;
	info->chan->n_subbufs = shape->n_subbufs;
	for (unsigned cpu = 0; cpu < shape->cpus; cpu++)
		buf_of(info, cpu)->start =
			(uintptr_t)data + (size_t)cpu * shape->n_subbufs * shape->subbuf_size;
}

/* A channel that readers do not see yet. */
static struct dti_info *make(const char *name, const struct dti_mark *shape)
{
	struct dti_info *info;
	uint32_t pages;
	uint64_t head;

	if (!name_length(name) || !shape->cpus || shape->cpus > MAX_CPUS || shape->subbuf_size < MIN_SUBBUF ||
	    shape->subbuf_size > MAX_SUBBUF || !shape->n_subbufs || shape->n_subbufs > MAX_SUBBUFS)
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

/* The sequence number of the oldest sub-buffer with records; that of the current one if there are none. */
static uint32_t oldest(const struct dti_info *info, const struct rchan_buf *buf)
{
	uint32_t n = info->chan->n_subbufs, at = buf->current;

	do
		at = (at + 1) % n;
	while (at != buf->current && !LOAD(buf->subbuf[at].used));
	return buf->subbuf[at].sequence;
}

/* Goes on from sub-buffers that were overwritten before they were read, and from those that have been read. Where the
 * next record is; NULL at the end. */
static const struct event_halves *next_unread(const struct dti_info *info, struct rchan_buf *buf)
{
	for (;;) {
		uint32_t n = info->chan->n_subbufs, current = LOAD(buf->current);
		uint32_t behind = buf->subbuf[current].sequence - buf->consumed;
		const struct event_halves *event;
		uint32_t index;

		if (behind >= n) {
			buf->consumed = oldest(info, buf);
			buf->consumed_bytes = 0;
			continue;
		}
		index = (current + n - behind) % n;
		if (buf->consumed_bytes >= LOAD(buf->subbuf[index].used)) {
			if (!behind)
				return NULL;
			buf->consumed++;
			buf->consumed_bytes = 0;
			continue;
		}
		event = (const void *)(subbuf_of(info, buf, index) + buf->consumed_bytes);
		if (event->low)
			return event;
		if (!behind)
			return NULL; /* it is being written */
		buf->consumed_bytes += sizeof(*event) + event->len; /* its writer is gone */
	}
}

size_t dti_read(struct dti_info *trace, unsigned cpu, void *to, size_t size)
{
	unsigned long flags;
	size_t read = 0;

	if (!trace || cpu >= trace->mark.cpus)
		return 0;
	flags = dti_kernel.irq_save();
	for (;;) {
		struct rchan_buf *buf = buf_of(trace, cpu);
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
		struct rchan_buf *buf = buf_of(trace, cpu);

		buf->consumed = oldest(trace, buf);
		buf->consumed_bytes = 0;
	}
	dti_kernel.irq_restore(flags);
}

/* The buffer for early records; NULL if the handle has none, or one that is too small. */
static struct dti_info *early_of(struct dti_handle *handle)
{
	uintptr_t start = (handle->early + 7) & ~(uintptr_t)7, end = handle->early + handle->early_bytes;
	size_t head = head_bytes(1, EARLY_SUBBUFS, 0) + sizeof(uint64_t);
	struct dti_info *info = (struct dti_info *)start;
	struct dti_mark shape = {
		.cpus = 1,
		.n_subbufs = EARLY_SUBBUFS,
		.level = handle->mark.level,
		.handle = handle->mark.self,
	};
	uint64_t self = (uintptr_t)&info->mark;
	char *data;

	if (!handle->early || end < start || end - start < head + EARLY_SUBBUFS * MIN_SUBBUF)
		return NULL;
	if (handle->early_used)
		return info;
	shape.subbuf_size = (end - start - head) / EARLY_SUBBUFS;
	__builtin_memset(info, 0, end - start);
	data = (char *)info + head - sizeof(uint64_t);
	fill(info, handle->mark.name, &shape, data);
	copy(data + (size_t)EARLY_SUBBUFS * shape.subbuf_size, &self, sizeof(self));
	STORE(info->mark.kind, DTI_KIND_EARLY);
	STORE(handle->early_used, 1);
	return info;
}

/* Appends the records of an early buffer, with interrupts off. */
static void take_in(const struct dti_info *info, const struct dti_info *early)
{
	struct rchan_buf *buf = buf_of(early, 0);

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
