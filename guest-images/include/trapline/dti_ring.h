/* Rings of records in memory that dti.h describes, and functions of dti.h on them: what dti.c and Linux's dti.ko have in common.
 * The file that includes this one defines the functions that are declared first. Only one file of a kernel includes it. */
#ifndef TRAPLINE_DTI_RING_H
#define TRAPLINE_DTI_RING_H

#include <trapline/dti.h>

#define MAX_CPUS 256
#define MIN_SUBBUF 16
#define MAX_SUBBUF (16u << 20)
#define MAX_SUBBUFS 65536
#define MAX_PAGES 16384
#define REGISTER_SUBBUFS 8
#define EARLY_SUBBUFS 4

#define SHARED static __attribute__((unused))

/* The kernel's clock. */
SHARED uint64_t now(void);
/* DTI_CLOCK_TSC or 0. */
SHARED uint32_t clock_kind(void);
/* The physical address of a page of an early buffer. */
SHARED uint64_t physical_of(const void *page);
/* Moves the start of an early buffer to where its head can be. The pages from there to the end, or 0 if that is one piece of
 * physical memory. */
SHARED uint32_t early_pages(uintptr_t *start, uintptr_t end);
/* The CPUs that there can be. */
SHARED unsigned cpus_of_kernel(void);
/* DTI_KIND_CHANNEL or DTI_KIND_RELAY. */
SHARED uint8_t kind_of_channels(void);
/* A channel that readers do not see yet, or NULL. */
SHARED struct dti_info *make(const char *name, const struct dti_mark *shape);
/* Appends a record to a channel, with interrupts off. A time of 0 stands for now. */
SHARED int append_to_channel(struct dti_info *info, uint64_t time, const void *data, size_t len);
/* Formats as the kernel's printk does; the length of the text. */
SHARED unsigned text_of(char text[DTI_PRINTK_MAX], const char *fmt, va_list args);

/* The order of stores is what makes memory consistent at each instruction. */
#define STORE(to, value) __atomic_store_n(&(to), (value), __ATOMIC_RELEASE)
#define LOAD(from) __atomic_load_n(&(from), __ATOMIC_ACQUIRE)

/* A record with the halves of its time, which are stored one after the other. */
struct event_halves {
	uint16_t len;
	uint32_t low, high;
} __attribute__((packed));

SHARED void copy(void *to, const void *from, size_t n)
{
	__builtin_memcpy(to, from, n);
}

SHARED struct dti_rchan *rchan_of(const struct dti_info *info)
{
	return (struct dti_rchan *)info->chan;
}

SHARED struct dti_rchan_buf *buf_of(const struct dti_info *info, unsigned cpu)
{
	size_t size = sizeof(struct dti_rchan_buf) + rchan_of(info)->n_subbufs * sizeof(struct dti_subbuf);

	return (struct dti_rchan_buf *)((char *)(rchan_of(info) + 1) + cpu * size);
}

SHARED char *subbuf_of(const struct dti_info *info, const struct dti_rchan_buf *buf, uint32_t index)
{
	return (char *)buf->start + (size_t)index * rchan_of(info)->subbuf_size;
}

/* Enters the next sub-buffer, in which the oldest records were. */
SHARED void enter_next(const struct dti_info *info, struct dti_rchan_buf *buf)
{
	uint32_t sequence = buf->subbuf[buf->newest].sequence + 1;
	uint32_t next = (buf->newest + 1) % rchan_of(info)->n_subbufs;

	STORE(buf->subbuf[next].used, 0);
	STORE(buf->subbuf[next].sequence, sequence);
	STORE(buf->newest, next);
}

/* Stores the header of a record of so many bytes that is not complete. */
SHARED void begin_event(struct event_halves *event, uint32_t bytes)
{
	event->len = bytes - sizeof(*event);
	event->low = 0;
	event->high = 0;
}

/* Stores its data, then its time. */
SHARED void complete_event(struct event_halves *event, uint64_t time, const void *data, size_t len)
{
	copy(event + 1, data, len);
	/* A lower half of 0 would mean that the record is not complete. */
	if (!(uint32_t)time)
		time |= 1;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	event->high = time >> 32;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	event->low = (uint32_t)time;
}

/* A place for a record of so many bytes, of which the header is there. */
SHARED struct event_halves *reserve(const struct dti_info *info, struct dti_rchan_buf *buf, uint32_t bytes)
{
	struct event_halves *event;
	struct dti_subbuf *subbuf;

	if (buf->subbuf[buf->newest].used + bytes > rchan_of(info)->subbuf_size)
		enter_next(info, buf);
	subbuf = &buf->subbuf[buf->newest];
	event = (struct event_halves *)(subbuf_of(info, buf, buf->newest) + subbuf->used);
	begin_event(event, bytes);
	STORE(subbuf->used, subbuf->used + bytes);
	return event;
}

/* Appends a record, with interrupts off. A time of 0 stands for now. */
SHARED int append(const struct dti_info *info, unsigned cpu, uint64_t time, const void *data, size_t len)
{
	struct dti_rchan_buf *buf = buf_of(info, cpu);
	struct event_halves *event;

	if (len > 0xffff || sizeof(*event) + len > rchan_of(info)->subbuf_size) {
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
		time = now();
	STORE(buf->reserving, 0);
	complete_event(event, time, data, len);
	return 0;
}

SHARED int recorded_at(const struct dti_mark *mark, int prio)
{
	return prio >= 0 && prio <= LOAD(mark->level);
}

SHARED void set_level(struct dti_mark *mark, int new_level)
{
	if (new_level >= DTI_LEVEL_OFF && new_level <= DTI_LEVEL_MAX)
		STORE(mark->level, new_level);
}

/* The name's length, or 0 if it cannot be the name of a channel. */
SHARED size_t name_length(const char *name)
{
	size_t n = 0;

	while (n < DTI_TRACENAME_LEN && name[n])
		n++;
	return n < DTI_TRACENAME_LEN ? n : 0;
}

/* Where struct dti_rchan lies in a channel of so many pages. */
SHARED size_t chan_offset(uint32_t pages)
{
	return offsetof(struct dti_info, physical) + pages * sizeof(uint64_t);
}

/* The bytes of a channel's head, with a list of so many pages. */
SHARED uint64_t head_bytes(unsigned cpus, uint32_t n_subbufs, uint32_t pages)
{
	uint64_t buf = sizeof(struct dti_rchan_buf) + (uint64_t)n_subbufs * sizeof(struct dti_subbuf);

	return chan_offset(pages) + sizeof(struct dti_rchan) + cpus * buf;
}

SHARED uint64_t pages_of(uint64_t bytes)
{
	return (bytes + DTI_PAGE_SIZE - 1) / DTI_PAGE_SIZE;
}

/* Whether a channel can have this name and this geometry. */
SHARED int is_possible(const char *name, const struct dti_mark *shape)
{
	return name_length(name) && shape->cpus && shape->cpus <= MAX_CPUS && shape->subbuf_size >= MIN_SUBBUF &&
	       shape->subbuf_size <= MAX_SUBBUF && shape->n_subbufs && shape->n_subbufs <= MAX_SUBBUFS;
}

/* The mark, without its kind. */
SHARED void fill_mark(struct dti_info *info, const char *name, const struct dti_mark *shape)
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
	info->clock = clock_kind();
}

/* Everything but the kind. The first sub-buffer is at `data`, with those of all CPUs behind. */
SHARED void fill(struct dti_info *info, const char *name, const struct dti_mark *shape, char *data)
{
	fill_mark(info, name, shape);
	info->chan = (void *)((char *)info + chan_offset(info->pages));
	rchan_of(info)->subbuf_size = shape->subbuf_size;
	rchan_of(info)->n_subbufs = shape->n_subbufs;
	for (unsigned cpu = 0; cpu < shape->cpus; cpu++)
		buf_of(info, cpu)->start =
			(uintptr_t)data + (size_t)cpu * shape->n_subbufs * shape->subbuf_size;
}

/* The sequence number of the oldest sub-buffer with records; that of the current one if there are none. */
SHARED uint32_t oldest(const struct dti_info *info, const struct dti_rchan_buf *buf)
{
	uint32_t n = rchan_of(info)->n_subbufs, at = buf->newest;

	do
		at = (at + 1) % n;
	while (at != buf->newest && !LOAD(buf->subbuf[at].used));
	return buf->subbuf[at].sequence;
}

/* Goes on from sub-buffers that were overwritten before they were read, and from those that have been read. Where the
 * next record is; NULL at the end. */
SHARED const struct event_halves *next_unread(const struct dti_info *info, struct dti_rchan_buf *buf)
{
	for (;;) {
		uint32_t n = rchan_of(info)->n_subbufs, newest = LOAD(buf->newest);
		uint32_t behind = buf->subbuf[newest].sequence - buf->consumed;
		const struct event_halves *event;
		uint32_t index;

		if (behind >= n) {
			buf->consumed = oldest(info, buf);
			buf->consumed_bytes = 0;
			continue;
		}
		index = (newest + n - behind) % n;
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

/* The buffer for early records; NULL if the handle has none, or one that is too small. */
SHARED struct dti_info *early_of(struct dti_handle *handle)
{
	uintptr_t start = handle->early, end = handle->early + handle->early_bytes;
	uint32_t pages = early_pages(&start, end);
	size_t head = head_bytes(1, EARLY_SUBBUFS, pages) + sizeof(uint64_t);
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
	info->pages = pages;
	for (uint32_t page = 0; page < pages; page++)
		info->physical[page] = physical_of((char *)info + (size_t)page * DTI_PAGE_SIZE);
	data = (char *)info + head - sizeof(uint64_t);
	fill(info, handle->mark.name, &shape, data);
	copy(data + (size_t)EARLY_SUBBUFS * shape.subbuf_size, &self, sizeof(self));
	STORE(info->mark.kind, DTI_KIND_EARLY);
	STORE(handle->early_used, 1);
	return info;
}

/* Moves the records of an early buffer to a channel, with interrupts off. */
SHARED void take_in(struct dti_info *info, const struct dti_info *early)
{
	struct dti_rchan_buf *buf = buf_of(early, 0);

	buf->consumed = oldest(early, buf);
	buf->consumed_bytes = 0;
	for (;;) {
		const struct event_halves *event = next_unread(early, buf);

		if (!event)
			return;
		append_to_channel(info, (uint64_t)event->high << 32 | event->low, event + 1, event->len);
		buf->consumed_bytes += sizeof(*event) + event->len;
	}
}

/* The channel that a handle is to have, but for its name. */
SHARED struct dti_mark shape_of(const struct dti_handle *handle)
{
	return (struct dti_mark){
		.cpus = cpus_of_kernel(),
		.subbuf_size = handle->bytes / REGISTER_SUBBUFS,
		.n_subbufs = REGISTER_SUBBUFS,
		.level = handle->mark.level,
		.handle = handle->mark.self,
	};
}

/* Gives a handle its channel, with the records of its early buffer, and with interrupts off. */
SHARED void give(struct dti_handle *handle, struct dti_info *info)
{
	if (handle->early_used)
		take_in(info, early_of(handle));
	/* From here on, readers see the channel, and no longer the buffer. */
	STORE(info->mark.kind, kind_of_channels());
	if (handle->early_used)
		STORE(early_of(handle)->mark.kind, 0);
	handle->early_used = 0;
	STORE(handle->info, info);
}

struct dti_info *__dti_register(const char *name, uint32_t subbuf_size, uint32_t n_subbufs)
{
	struct dti_mark shape = {
		.cpus = cpus_of_kernel(),
		.subbuf_size = subbuf_size,
		.n_subbufs = n_subbufs,
		.level = DTI_LEVEL_DEFAULT,
	};
	struct dti_info *info = make(name, &shape);

	if (info)
		STORE(info->mark.kind, kind_of_channels());
	return info;
}

struct dti_info *dti_register(const char *name, int size_in_k)
{
	if (size_in_k <= 0 || size_in_k > (int)(MAX_SUBBUF / 1024))
		return NULL;
	return __dti_register(name, (uint32_t)size_in_k * 1024 / REGISTER_SUBBUFS, REGISTER_SUBBUFS);
}

int dti_event_raw(struct dti_info *trace, int prio, const void *buf, size_t len)
{
	return dti_log(trace, prio, buf, len);
}

int dti_printk_raw(struct dti_info *trace, int prio, const char *fmt, ...)
{
	char text[DTI_PRINTK_MAX];
	va_list args;
	unsigned len;

	if (!trace || !recorded_at(&trace->mark, prio))
		return -1;
	va_start(args, fmt);
	len = text_of(text, fmt, args);
	va_end(args);
	return dti_log(trace, prio, text, len);
}

int dti_handle_printk(struct dti_handle *handle, int prio, const char *fmt, ...)
{
	struct dti_info *info = LOAD(handle->info);
	char text[DTI_PRINTK_MAX];
	va_list args;
	unsigned len;

	if (!recorded_at(info ? &info->mark : &handle->mark, prio))
		return -1;
	va_start(args, fmt);
	len = text_of(text, fmt, args);
	va_end(args);
	return dti_handle_event(handle, prio, text, len);
}

void dti_set_level(struct dti_info *trace, int new_level)
{
	set_level(&trace->mark, new_level);
}

void dti_handle_cleanup(struct dti_handle *handle)
{
	struct dti_info *info = LOAD(handle->info);

	STORE(handle->info, NULL);
	dti_unregister(info);
}

/* The level of a handle, and of what it has; a caller that may meet another CPU there keeps it away. */
SHARED void set_levels(struct dti_handle *handle, int new_level)
{
	struct dti_info *info = LOAD(handle->info);

	set_level(&handle->mark, new_level);
	if (info)
		set_level(&info->mark, new_level);
	else if (handle->early_used)
		set_level(&early_of(handle)->mark, new_level);
}

#endif
