/* dti.c as a program of the host: executes operations from standard input on channels in a file that is its physical
 * memory, in which the pages of a channel are scattered. Results go to standard output at each 's'. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <trapline/dti.h>

#define PAGE 4096ul
#define PAGES 1024ul
#define SLOTS 64
#define CPUS 3

static int memory;
static uint8_t taken[PAGES];
static char *window; /* where channels are mapped */
static unsigned long mapped, frames[16 * PAGES];
static unsigned this_cpu, may_allocate = 1, scatter = 1;
static uint64_t now = 1;
static uint8_t results[1 << 24];
static size_t results_size;

static unsigned cpu(void) { return this_cpu; }
static unsigned long irq_save(void) { return 0; }
static void irq_restore(unsigned long flags) { (void)flags; }
static uint64_t tick(void) { return now++; }

static void *allocate(unsigned long pages)
{
	unsigned long first = mapped;

	if (!may_allocate || mapped + pages > sizeof(frames) / sizeof(*frames))
		return NULL;
	for (unsigned long n = 0; n < pages; n++) {
		unsigned long tries = 0;

		do {
			scatter = scatter * 1103515245 + 12345;
			if (++tries > 100 * PAGES)
				return NULL;
		} while (taken[scatter / 65536 % PAGES]);
		frames[mapped] = scatter / 65536 % PAGES;
		taken[frames[mapped]] = 1;
		mmap(window + mapped * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory,
		     frames[mapped] * PAGE);
		mapped++;
	}
	return memset(window + first * PAGE, 0, pages * PAGE);
}

static void give_back(void *start, unsigned long pages)
{
	unsigned long first = ((char *)start - window) / PAGE;

	for (unsigned long n = first; n < first + pages; n++)
		taken[frames[n]] = 0;
}

static uint64_t physical(const void *page)
{
	return frames[((const char *)page - window) / PAGE] * PAGE;
}

static unsigned text(char *to, unsigned size, const char *fmt, va_list args)
{
	int n = vsnprintf(to, size, fmt, args);

	return n < (int)size ? n : (int)size - 1;
}

const struct dti_kernel dti_kernel = {
	.cpus = CPUS, .cpu = cpu, .irq_save = irq_save, .irq_restore = irq_restore, .clock = tick, .clock_kind = DTI_CLOCK_TSC,
	.allocate = allocate, .free = give_back, .physical = physical, .printk = text,
};

static void result(const void *bytes, size_t n)
{
	memcpy(results + results_size, bytes, n);
	results_size += n;
}

static uint32_t number(void)
{
	uint32_t value;

	if (fread(&value, sizeof(value), 1, stdin) != 1)
		exit(0);
	return value;
}

static void data_of(uint8_t *to, uint32_t len, uint32_t seed)
{
	for (uint32_t n = 0; n < len; n++)
		to[n] = seed + n * 7;
}

/* Data whose reading faults: the fault writes a record to the same channel. */
static uint8_t *faulting;
static struct dti_info *nested_to;
static uint32_t nested_len;
static int nested_result;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	uint8_t data[300];

	(void)signal, (void)context;
	if ((uint8_t *)info->si_addr < faulting || (uint8_t *)info->si_addr >= faulting + PAGE)
		_exit(3);
	mprotect(faulting, PAGE, PROT_READ | PROT_WRITE);
	data_of(data, nested_len, 99);
	nested_result = dti_event_raw(nested_to, 0, data, nested_len);
}

int main(int argc, char **argv)
{
	static struct dti_info *channels[SLOTS];
	static struct dti_handle *handles[SLOTS];
	static uint8_t data[70000];
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	int op;

	if (argc != 2)
		return 2;
	memory = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (ftruncate(memory, PAGES * PAGE))
		return 2;
	/* At the same address each time, so that memories of two runs can be compared. */
	window = mmap((void *)0x200000000000, sizeof(frames) / sizeof(*frames) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		      -1, 0);
	faulting = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigaction(SIGSEGV, &action, NULL);
	while ((op = getchar()) != EOF) {
		uint32_t a = number(), b = number(), c = number(), d = number();
		int8_t done = 0;

		this_cpu = b % CPUS;
		switch (op) {
		case 'r': { /* register: slot, -, size, number */
			char name[DTI_TRACENAME_LEN];

			snprintf(name, sizeof(name), "channel %u", a);
			channels[a] = d == 8 && c % 128 == 0 ? dti_register(name, c * 8 / 1024) : __dti_register(name, c, d);
			done = channels[a] ? 0 : -1;
			result(&done, 1);
			break;
		}
		case 'u':
			dti_unregister(channels[a]);
			channels[a] = NULL;
			break;
		case 'w': /* write: slot, CPU, priority, length; the data begin with the length */
			data_of(data, d, d);
			done = dti_event_raw(channels[a], (int)c, data, d);
			result(&done, 1);
			break;
		case 'x':
			data_of(data, d, d);
			done = dti_exception(channels[a], (int)c, data, d);
			result(&done, 1);
			break;
		case 'p':
			done = dti_printk_raw(channels[a], (int)c, "%u of %s\n", d, "text");
			result(&done, 1);
			break;
		case 'n': /* nested: slot, CPU, length inside, length outside */
			data_of(faulting, d, d);
			nested_to = channels[a];
			nested_len = c;
			nested_result = -2;
			mprotect(faulting, PAGE, PROT_NONE);
			done = dti_event_raw(channels[a], 0, faulting, d);
			mprotect(faulting, PAGE, PROT_READ | PROT_WRITE);
			result(&done, 1);
			done = nested_result;
			result(&done, 1);
			break;
		case 'l':
			dti_set_level(channels[a], (int)c);
			break;
		case 'd': { /* read: slot, CPU, size */
			uint32_t n = dti_read(channels[a], b, data, c);

			result(&n, sizeof(n));
			result(data, n);
			break;
		}
		case 'c':
			dti_reset_consumed(channels[a]);
			break;
		case 't':
			now = (uint64_t)c << 32 | d;
			break;
		case 'h': { /* handle: slot, -, bytes, bytes of its early buffer; both in pages of the memory, in one piece */
			char *at = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, a * 4 * PAGE);
			struct dti_handle *handle = (struct dti_handle *)(at + 64);

			DEFINE_DTI_HANDLE(defined, "handle", 0, DTI_LEVEL_DEBUG, NULL);
			memset(taken + a * 4, 1, 4);
			*handle = defined;
			handle->mark.self = (uintptr_t)&handle->mark;
			handle->bytes = c;
			handle->early = d ? (uintptr_t)at + 1001 : 0;
			handle->early_bytes = d;
			handles[a] = handle;
			break;
		}
		case 'e':
			data_of(data, d, d);
			done = dti_event(*handles[a], (int)c, data, d);
			result(&done, 1);
			break;
		case 'i':
			done = INIT_DTI_HANDLE(*handles[a]);
			result(&done, 1);
			break;
		case 'k':
			CLEANUP_DTI_HANDLE(*handles[a]);
			break;
		case 'm':
			may_allocate = a;
			break;
		case 's':
			result("s", 1);
			fwrite(results, 1, results_size, stdout);
			fflush(stdout);
			results_size = 0;
			break;
		default:
			return 2;
		}
	}
	return 0;
}
