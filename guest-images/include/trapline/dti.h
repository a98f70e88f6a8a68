/*
 * The Driver Tracing Interface: channels of trace records that survive a crash.
 *
 *     #include <trapline/dti.h>
 *
 *     DEFINE_DTI_HANDLE(my_handle, "my-driver", 32 * 1024, DTI_LEVEL_DEBUG, NULL);
 *
 *     dti_printk(my_handle, DTI_LEVEL_INFO, "reset, status %x", status);
 *     dti_event(my_handle, DTI_LEVEL_DEBUG, &descriptor, sizeof(descriptor));
 *
 * A channel is a ring of sub-buffers for each CPU. A record is written to the ring of the current CPU if its priority is
 * at most the channel's level. Records never cross a sub-buffer. A full ring overwrites its oldest sub-buffer. `trapline
 * dti` reads channels from the memory of a machine or of a crash dump, without help of the guest.
 *
 * The functions may be called in any context. Interrupts are off while a record is written. A write that comes nested in
 * another one, from an NMI or from a fault on the data, is recorded too, unless it comes while the outer one reserves its
 * place; then it is refused and counted.
 *
 * The interface is that of Wilder, Holzheu and Zanussi, Driver Tracing Interface, Linux Symposium 2007: figure 2, section 5
 * (handles) and table 1 (define DTI_S390DBF for the names of the s390 debug feature). A kernel links dti.c, defines
 * `dti_kernel`, and has memcpy and memset. GNU C, little-endian, 32 or 64 bits.
 */
#ifndef TRAPLINE_DTI_H
#define TRAPLINE_DTI_H

#ifdef __KERNEL__ /* Linux, where the module dti.ko has these functions: guest-images/linux */
#include <linux/kernel.h>
#include <linux/types.h>
#else
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#endif

/* Levels and priorities: a record is written if its priority is at most the level. */
#define DTI_LEVEL_OFF (-1)
#define DTI_LEVEL_EMERG 0
#define DTI_LEVEL_ALERT 1
#define DTI_LEVEL_CRIT 2
#define DTI_LEVEL_ERR 3
#define DTI_LEVEL_WARNING 4
#define DTI_LEVEL_NOTICE 5
#define DTI_LEVEL_INFO 6
#define DTI_LEVEL_DEBUG 7
#define DTI_LEVEL_MAX 7
#define DTI_LEVEL_DEFAULT 3

#define DTI_TRACENAME_LEN 48 /* with the NUL */
#define DTI_PRINTK_MAX 256   /* a longer text is cut */
#define DTI_PAGE_SIZE 4096

/* A record. Its data follow it. */
struct dti_event {
	uint16_t len;  /* of the data */
	uint64_t time; /* its lower half is stored last, and is 0 until the data are complete */
	char data[];
} __attribute__((packed));

#ifndef __KERNEL__
/* What DTI needs of a kernel. */
struct dti_kernel {
	unsigned cpus;
	unsigned (*cpu)(void); /* the current one, from 0 */
	unsigned long (*irq_save)(void);
	void (*irq_restore)(unsigned long flags);
	uint64_t (*clock)(void); /* never goes back on one CPU */
	uint32_t clock_kind;     /* DTI_CLOCK_TSC if that is the processor's time stamp counter, otherwise 0 */
	/* Pages of zeros at consecutive virtual addresses; NULL if there are none, or none yet. */
	void *(*allocate)(unsigned long pages);
	void (*free)(void *start, unsigned long pages);
	uint64_t (*physical)(const void *page); /* address of such a page */
	/* Formats as the kernel's printk does; the length of the text, which is less than `size`. */
	unsigned (*printk)(char *to, unsigned size, const char *fmt, va_list args);
};

extern const struct dti_kernel dti_kernel;
#endif

/*
 * What a reader of memory finds. Little-endian; an ADDRESS takes 8 bytes at either width.
 *
 * struct dti_mark
 *   offset size
 *      0    7   dti           "__DTI__"
 *      7   48   name          NUL-terminated, zeros behind
 *     55    1   version       1
 *     56    1   word_size     4 or 8
 *     57    1   kind          DTI_KIND_*; 0 while it is made and after it is freed
 *     58    2   cpus          of DTI_KIND_RELAY all that there can be
 *     60    4   subbuf_size   bytes
 *     64    4   n_subbufs
 *     68    4   level
 *     72    8   self          ADDRESS of this mark
 *     80    8   handle        ADDRESS of the mark of the handle that it belongs to, or 0
 *
 * struct dti_info, the head of a channel
 *      0    8   chan          pointer to the description of the rings, which ends directly before the mark
 *      8   88   mark
 *     96    4   pages         of the whole channel; 0 in an early buffer that is in one piece of physical memory
 *    100    4   clock         DTI_CLOCK_TSC: times are what rdtsc gives; 0: they are others
 *    104  8*p   physical      physical address of each page, this one first
 *
 * struct dti_rchan, directly behind: subbuf_size and n_subbufs (4 bytes each), and for each CPU
 *      0    8   start         ADDRESS of its first sub-buffer
 *      8    4   newest        the sub-buffer that is written to
 *     12    4   consumed      sequence number of the sub-buffer that dti_read is in
 *     16    4   consumed_bytes
 *     20    4   too_long      records refused: longer than a sub-buffer
 *     24    4   nested        records refused: nested in a reservation
 *     28    4   reserving     1 during a reservation
 *     32  8*n   subbuf        of each sub-buffer its sequence number and the bytes used
 *
 * The sub-buffers begin at the next page: those of CPU 0, those of CPU 1, and so on. An early buffer has one CPU, its
 * sub-buffers follow directly, and behind them is the ADDRESS of its mark again.
 *
 * DTI_KIND_RELAY: Linux's dti.ko. `chan` points to relay's struct rchan, and instead of struct dti_rchan there is
 * struct dti_relay, which says where the fields of relay's structures are:
 *      0    8   rchan         physical address of struct rchan
 *      8 2*10   at            offsets of fields, as the members of the struct are named
 *     28    4   reserved
 * and for each CPU
 *      0    8   buf           physical address of its struct rchan_buf; 0 if it has not been online
 *      8    8   start         ADDRESS of its first sub-buffer
 *     16    8   padding       physical address of the array of unused bytes
 *     24    4   too_long
 *     28    4   nested
 *     32    4   reserving
 *     36    4   reserved
 * The sub-buffers of each CPU begin at a page. The list of pages has those of the head, which is in one piece of physical
 * memory, then those of CPU 0, and so on; 0 for a CPU that has not been online.
 *
 * To enter the next sub-buffer, its used bytes become 0, then its sequence number becomes that of the current one plus 1,
 * then `newest` changes. To append a record, its header is stored, then the used bytes grow, then come the data, then the
 * time. So memory is consistent before and after each instruction.
 */
#define DTI_VERSION 1
#define DTI_KIND_CHANNEL 1
#define DTI_KIND_HANDLE 2
#define DTI_KIND_EARLY 3
#define DTI_KIND_RELAY 4
#define DTI_CLOCK_TSC 1

#if __SIZEOF_POINTER__ == 4
#define DTI_ADDRESS(name) uintptr_t name; uint32_t name##_high
#define DTI_BEFORE_POINTER uint32_t before_pointer;
#else
#define DTI_ADDRESS(name) uintptr_t name
#define DTI_BEFORE_POINTER
#endif

/* The data of Linux's modules are not in one piece of physical memory. An early buffer there begins at a page if it is not
 * within one: DTI_EARLY_BUFFER(name, bytes). */
#ifdef __KERNEL__
#define DTI_IN_ONE_PAGE __attribute__((aligned(128)))
#define DTI_EARLY_BUFFER(name, bytes) char name[bytes] __attribute__((aligned(DTI_PAGE_SIZE)))
#else
#define DTI_IN_ONE_PAGE
#define DTI_EARLY_BUFFER(name, bytes) char name[bytes] __attribute__((aligned(8)))
#endif

struct dti_mark {
	char dti[7];
	char name[DTI_TRACENAME_LEN];
	uint8_t version;
	uint8_t word_size;
	uint8_t kind;
	uint16_t cpus;
	uint32_t subbuf_size;
	uint32_t n_subbufs;
	int32_t level;
	DTI_ADDRESS(self);
	DTI_ADDRESS(handle);
};

/* The rings of Linux's channels are those of relay. */
#ifdef __KERNEL__
#define DTI_RCHAN struct rchan
#else
#define DTI_RCHAN struct dti_rchan
#endif

struct dti_info {
	DTI_BEFORE_POINTER
	DTI_RCHAN *chan;
	struct dti_mark mark;
	uint32_t pages;
	uint32_t clock;
	uint64_t physical[];
};

struct dti_subbuf {
	uint32_t sequence;
	uint32_t used;
};

struct dti_rchan_buf {
	DTI_ADDRESS(start);
	uint32_t newest;
	uint32_t consumed;
	uint32_t consumed_bytes;
	uint32_t too_long;
	uint32_t nested;
	uint32_t reserving;
	struct dti_subbuf subbuf[];
};

struct dti_rchan {
	uint32_t subbuf_size;
	uint32_t n_subbufs;
};

struct dti_relay_cpu {
	uint64_t buf;
	uint64_t start;
	uint64_t padding;
	uint32_t too_long;
	uint32_t nested;
	uint32_t reserving;
	uint32_t reserved;
};

struct dti_relay {
	uint64_t rchan;
	/* In struct rchan. */
	uint16_t subbuf_size, n_subbufs;
	/* In struct rchan_buf. */
	uint16_t start, data, offset, produced, consumed, chan, padding, bytes_consumed;
	uint32_t reserved;
	struct dti_relay_cpu cpu[];
};

/* A channel that is made at the first write for which memory can be allocated. */
struct dti_handle {
	DTI_BEFORE_POINTER
	struct dti_info *info; /* NULL: unbound */
	struct dti_mark mark;
	uint32_t bytes;        /* of the channel, for each CPU */
	uint32_t early_bytes;
	DTI_ADDRESS(early);    /* the buffer for records before that, or 0 */
	uint32_t binding;
	uint32_t early_used;
};

_Static_assert(sizeof(struct dti_event) == 10, "layout is documented");
_Static_assert(sizeof(struct dti_mark) == 88, "layout is documented");
_Static_assert(offsetof(struct dti_info, mark) == 8, "layout is documented");
_Static_assert(offsetof(struct dti_info, physical) == 104, "layout is documented");
_Static_assert(sizeof(struct dti_rchan_buf) == 32, "layout is documented");
_Static_assert(sizeof(struct dti_relay_cpu) == 40, "layout is documented");
_Static_assert(offsetof(struct dti_relay, cpu) == 32, "layout is documented");
_Static_assert(offsetof(struct dti_handle, mark) == 8, "layout is documented");
_Static_assert(sizeof(struct dti_handle) == 120, "layout is documented");

/* A new channel with size_in_k KiB for each CPU, in 8 sub-buffers; NULL if it cannot be made. */
struct dti_info *dti_register(const char *name, int size_in_k);
/* The same with sub-buffers as given. */
struct dti_info *__dti_register(const char *name, uint32_t subbuf_size, uint32_t n_subbufs);
void dti_unregister(struct dti_info *trace);
/* These return 0 if the record is written, otherwise -1. */
int dti_printk_raw(struct dti_info *trace, int prio, const char *fmt, ...);
int dti_event_raw(struct dti_info *trace, int prio, const void *buf, size_t len);
/* Writes a record and enters the next sub-buffer, so that the records up to it are kept longest. */
int dti_exception(struct dti_info *trace, int prio, const void *buf, size_t len);
/* Levels other than -1 to DTI_LEVEL_MAX are ignored. */
void dti_set_level(struct dti_info *trace, int new_level);

#ifndef __KERNEL__ /* there, these are the files dataN and reset_consumed of debugfs */
/* Moves the next whole records of a CPU that have not been read yet to a buffer: what a read of the file dataN gives. The
 * bytes; 0 if there are none, or if the next one does not fit. */
size_t dti_read(struct dti_info *trace, unsigned cpu, void *to, size_t size);
/* Makes all records readable again. */
void dti_reset_consumed(struct dti_info *trace);
#endif

/* The function that all writes go through. */
int dti_log(struct dti_info *trace, int prio, const void *buf, size_t len);

/* buf_: a static array for records that come before memory can be allocated, or NULL. */
#define DEFINE_DTI_HANDLE(handle_, name_, bytes_, level_, buf_) \
	struct dti_handle handle_ DTI_IN_ONE_PAGE = { \
		.mark = { \
			.dti = { '_', '_', 'D', 'T', 'I', '_', '_' }, \
			.name = name_, \
			.version = DTI_VERSION, \
			.word_size = sizeof(void *), \
			.kind = DTI_KIND_HANDLE, \
			.level = (level_), \
			.self = (uintptr_t)&handle_.mark, \
		}, \
		.bytes = (bytes_), \
		.early_bytes = sizeof(buf_), \
		.early = (uintptr_t)(buf_), \
	}; \
	_Static_assert(sizeof(name_) > 1 && sizeof(name_) <= DTI_TRACENAME_LEN, "name of a DTI channel")

/* Binds a handle, if memory can be allocated by now: 0, otherwise -1. Records of the early buffer move to the channel. */
#define INIT_DTI_HANDLE(handle_) dti_handle_init(&(handle_))
#define CLEANUP_DTI_HANDLE(handle_) dti_handle_cleanup(&(handle_))
#define dti_printk(handle_, prio_, ...) dti_handle_printk(&(handle_), (prio_), __VA_ARGS__)
#define dti_event(handle_, prio_, buf_, len_) dti_handle_event(&(handle_), (prio_), (buf_), (len_))

int dti_handle_init(struct dti_handle *handle);
void dti_handle_cleanup(struct dti_handle *handle);
int dti_handle_printk(struct dti_handle *handle, int prio, const char *fmt, ...);
int dti_handle_event(struct dti_handle *handle, int prio, const void *buf, size_t len);
void dti_handle_set_level(struct dti_handle *handle, int new_level);

/* Table 1: the s390 debug feature. An area is a sub-buffer; buf_size_, the most bytes of a record there, is not needed. */
#ifdef DTI_S390DBF
typedef struct dti_info debug_info_t;
#define debug_register(name_, pages_, areas_, buf_size_) \
	__dti_register((name_), (pages_) * DTI_PAGE_SIZE, (areas_))
#define debug_unregister(id_) dti_unregister(id_)
#define debug_event(id_, level_, buf_, len_) dti_event_raw((id_), (level_), (buf_), (len_))
#define debug_sprintf_event(id_, level_, ...) dti_printk_raw((id_), (level_), __VA_ARGS__)
#define debug_set_level(id_, level_) dti_set_level((id_), (level_))
#define debug_exception(id_, level_, buf_, len_) dti_exception((id_), (level_), (buf_), (len_))
#endif

#endif
