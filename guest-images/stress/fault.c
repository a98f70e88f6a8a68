// SPDX-License-Identifier: GPL-2.0-or-later
/* Faults of the processor: the signal, its si_code, its si_addr and the registers' address. */

#include "stress.h"

unsigned long guard_sp;
extern const char guard_out[];
long guarded(void (*function)(long), long argument);

static volatile int seen, seen_signal, seen_code;
static volatile unsigned long seen_address, seen_ip;

/* Notes the fault and continues after the call of `guarded`. */
static void leave(int signal, siginfo_t *info, void *context)
{
	seen++;
	seen_signal = signal;
	seen_code = info->si_code;
	seen_address = (unsigned long)info->si_addr;
	seen_ip = FRAME(context)->FRAME_IP;
	FRAME(context)->FRAME_IP = (unsigned long)guard_out;
	FRAME(context)->FRAME_SP = guard_sp;
	FRAME(context)->eflags &= ~TF;
}

/* Functions that fault at the label NAME_at. */
#define FAULTING(name, text)                                                                                           \
	__asm__(".text\n" #name ":\n" text "\n ret\n");                                                              \
	void name(long);                                                                                               \
	extern const char name##_at[]

FAULTING(f_ud2, "f_ud2_at: ud2");
FAULTING(f_lock, "f_lock_at: .byte 0xf0, 0x90");
FAULTING(f_int3, "f_int3_at: int3");
FAULTING(f_div, "xor %edx, %edx\n mov $1, %eax\n xor %ecx, %ecx\n f_div_at: div %ecx");
FAULTING(f_idiv, "mov $0x80000000, %eax\n cltd\n mov $-1, %ecx\n f_idiv_at: idiv %ecx");
FAULTING(f_hlt, "f_hlt_at: hlt");
FAULTING(f_in, "f_in_at: in $0x80, %al");
FAULTING(f_cli, "f_cli_at: cli");
FAULTING(f_int, "f_int_at: int $0x81");
FAULTING(f_x87, "push $0x37b\n fninit\n fldcw (%" SP ")\n fld1\n fldz\n fdivrp\n f_x87_at: fwait\n pop %" AX);
FAULTING(f_step, "pushf\n orl $0x100, (%" SP ")\n popf\n nop\n f_step_at: nop");

static void read_at(long address)
{
	*(volatile int *)address;
}

static void store_at(long address)
{
	*(volatile int *)address = 1;
}

static void jump_to(long address)
{
	((void (*)(void))address)();
}

struct fault {
	const char *what;
	void (*function)(long);
	const char *ip;
	int signal, code;
	int behind, address_is_ip; /* ip is this far after the label; si_addr is ip, or else 0 */
};

static const char *run_faults(const struct fault *faults)
{
	static const int signals[] = { SIGSEGV, SIGILL, SIGFPE, SIGTRAP };
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
		EXPECT("sigaction", handle(signals[i], leave, SA_NODEFER), 0);
	for (int round = 0; round < 20; round++) {
		for (const struct fault *f = faults; f->what; f++) {
			int before = seen;
			guarded(f->function, 0);
			if (seen != before + 1)
				return differs("%s gave %d signals", f->what, seen - before);
			EXPECT(f->what, seen_signal, f->signal);
			EXPECT(f->what, seen_code, f->code);
			EXPECT(f->what, seen_ip, f->ip + f->behind);
			EXPECT(f->what, seen_address, f->address_is_ip ? seen_ip : 0);
		}
	}
	return 0;
}

static const char *ill(void)
{
	static const struct fault faults[] = {
		{ "ud2", f_ud2, f_ud2_at, SIGILL, ILL_ILLOPN, 0, 1 },
		{ "lock nop", f_lock, f_lock_at, SIGILL, ILL_ILLOPN, 0, 1 },
		{ 0 },
	};
	return run_faults(faults);
}

static const char *trap(void)
{
	static const struct fault faults[] = {
		{ "int3", f_int3, f_int3_at, SIGTRAP, SI_KERNEL, 1, 0 },
		{ "the trap flag", f_step, f_step_at, SIGTRAP, TRAP_TRACE, 0, 1 },
		{ 0 },
	};
	return run_faults(faults);
}

static const char *fpe(void)
{
	static const struct fault faults[] = {
		{ "div by 0", f_div, f_div_at, SIGFPE, FPE_INTDIV, 0, 1 },
		{ "idiv overflow", f_idiv, f_idiv_at, SIGFPE, FPE_INTDIV, 0, 1 },
		{ 0 },
	};
	return run_faults(faults);
}

static const char *x87(void)
{
	static const struct fault faults[] = {
		{ "fdiv by 0", f_x87, f_x87_at, SIGFPE, FPE_FLTDIV, 0, 1 },
		{ 0 },
	};
	return run_faults(faults);
}

static const char *privileged(void)
{
	static const struct fault faults[] = {
		{ "hlt", f_hlt, f_hlt_at, SIGSEGV, SI_KERNEL, 0, 0 },
		{ "in", f_in, f_in_at, SIGSEGV, SI_KERNEL, 0, 0 },
		{ "cli", f_cli, f_cli_at, SIGSEGV, SI_KERNEL, 0, 0 },
		{ "int 81h", f_int, f_int_at, SIGSEGV, SI_KERNEL, 0, 0 },
		{ 0 },
	};
	return run_faults(faults);
}

/* One access by `function` that must end in this signal with the address itself as si_addr. */
static const char *touch(void (*function)(long), long address, int signal, int code)
{
	int before = seen;
	guarded(function, address);
	EXPECT("signals", seen, before + 1);
	EXPECT("the signal", seen_signal, signal);
	EXPECT("si_code", seen_code, code);
	EXPECT("si_addr", seen_address, address);
	return 0;
}

static const char *segv(void)
{
	const char *wrong;
	EXPECT("sigaction", handle(SIGSEGV, leave, SA_NODEFER), 0);
	EXPECT("sigaction", handle(SIGBUS, leave, SA_NODEFER), 0);
	long file = SYS2(memfd_create, "empty", 0);
	uint8_t *beyond = map(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file);
	uint8_t *at = pages(3 * PAGE, PROT_READ);
	SYS2(munmap, at + PAGE, PAGE);
	SYS3(mprotect, at + 2 * PAGE, PAGE, PROT_NONE);
	for (long offset = 0; offset < PAGE - 4; offset += 123) {
		long page = (long)at + offset;
		if ((wrong = touch(read_at, page + PAGE, SIGSEGV, SEGV_MAPERR)) ||
		    (wrong = touch(store_at, page + PAGE, SIGSEGV, SEGV_MAPERR)) ||
		    (wrong = touch(jump_to, page + PAGE, SIGSEGV, SEGV_MAPERR)) ||
		    (wrong = touch(store_at, page, SIGSEGV, SEGV_ACCERR)) ||
		    (wrong = touch(read_at, page + 2 * PAGE, SIGSEGV, SEGV_ACCERR)) ||
		    (wrong = touch(read_at, offset, SIGSEGV, SEGV_MAPERR)) ||
		    (wrong = touch(read_at, (long)beyond + offset, SIGBUS, BUS_ADRERR)))
			return wrong;
#ifdef __x86_64__
		/* Executing what may only be read; an address that is not canonical, of which si_addr says nothing. */
		if ((wrong = touch(jump_to, page, SIGSEGV, SEGV_ACCERR)))
			return wrong;
		guarded(read_at, (1ul << 63) + offset);
		EXPECT("si_code of a non-canonical address", seen_code, SI_KERNEL);
		EXPECT("si_addr of a non-canonical address", seen_address, 0);
#endif
	}
	/* For an access across the end of a page, the first unmapped byte. */
	guarded(read_at, (long)at + PAGE - 2);
	EXPECT("si_addr of an access over the end of a page", seen_address, (long)at + PAGE);
	return 0;
}

static volatile int nested;

static void nest(int signal, siginfo_t *info, void *context)
{
	volatile int here = nested++;
	if (here < 10)
		SYS2(kill, SYS0(getpid), signal);
	if (here + 1 == nested)
		__asm__ volatile("ud2");
	(void)info, (void)context;
}

static void skip_ud2(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	FRAME(context)->FRAME_IP += 2;
	nested += 100;
}

/* Handlers within handlers, on a stack of their own; the innermost faults. */
static const char *nested_signals(void)
{
	stack_t other = { .ss_sp = pages(16 * PAGE, PROT_READ | PROT_WRITE), .ss_size = 16 * PAGE };
	EXPECT("sigaltstack", SYS2(sigaltstack, &other, 0), 0);
	EXPECT("sigaction", handle(SIGUSR2, nest, SA_NODEFER | SA_ONSTACK), 0);
	EXPECT("sigaction", handle(SIGILL, skip_ud2, SA_ONSTACK), 0);
	EXPECT("kill", SYS2(kill, SYS0(getpid), SIGUSR2), 0);
	EXPECT("handlers", nested, 111);
	return 0;
}

const struct check fault_checks[] = {
	{ "SIGSEGV", segv },	     { "SIGILL", ill },		  { "SIGTRAP", trap },
	{ "SIGFPE", fpe },	     { "SIGFPE of the x87", x87 }, { "privileged instructions", privileged },
	{ "nested signals", nested_signals }, { 0, 0 },
};
