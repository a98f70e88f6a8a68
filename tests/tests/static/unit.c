#include <trapline/probe.h>

static long rounds;

/* Calls that a loader replaces. */
extern void __dtrace_probe_unit__round(long number, const char *name);
extern void __dtrace_probe_unit__last(long rounds);

__attribute__((noinline)) static void go(long number)
{
	__dtrace_probe_unit__round(number, "round");
	TRAPLINE_PROBE_ns(request, number * number, "square");
	rounds++;
}

int init_module(void)
{
	for (long n = 1; n <= 5; n++)
		go(n);
	return 0;
}

void cleanup_module(void)
{
	TRAPLINE_PROBE_n(stopped, rounds);
	__dtrace_probe_unit__last(rounds);
}
