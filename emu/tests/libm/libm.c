/* The functions of the C library's libm over special and random numbers: each result, and the exceptions that it raised.
 * With -DGUEST there is no operating system: `guest` writes the results to memory and halts. Otherwise the program writes them
 * to its standard output, for each of the seeds that are its arguments. */
#define _GNU_SOURCE
#include <fenv.h>
#include <math.h>
#include <string.h>

enum { INPUTS = 300 };
/* The engine notes no denormal operand. */
#define NOTED (FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INEXACT)

struct result {
	unsigned char value[10];
	unsigned short raised;
};

static unsigned long long state;

static unsigned long long next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * 0x2545F4914F6CDD1DULL;
}

static float of_float(void)
{
	static const unsigned special[] = { 0, 1, 0x7fffff, 0x800000, 0x3f800000, 0x3f7fffff, 0x3f000000, 0x40490fdb, 0x4b000000,
		0x5f000000, 0x7f7fffff, 0x7f800000, 0x7fc00000 };
	unsigned long long n = next();
	unsigned bits = n >> 32;
	float value;
	if (n % 4 == 0)
		bits = special[(n >> 8) % 13] | (bits & 0x80000000u);
	else if (n % 4 == 1)
		bits = (bits & 0x80ffffff) + 0x3e800000u;
	else if (n % 4 == 2)
		bits = (bits & 0x83ffffff) + 0x3e000000u;
	/* No signaling NaN. */
	if ((bits & 0x7fffffff) > 0x7f800000)
		bits |= 0x400000;
	memcpy(&value, &bits, 4);
	return value;
}

static double of_double(void)
{
	unsigned long long n = next(), bits = next();
	double value;
	if (n % 4 == 0)
		return of_float();
	if (n % 4 == 1)
		bits = (bits & 0x801fffffffffffffULL) + 0x3fd0000000000000ULL;
	else if (n % 4 == 2)
		bits = (bits & 0x807fffffffffffffULL) + 0x3fc0000000000000ULL;
	if ((bits & 0x7fffffffffffffffULL) > 0x7ff0000000000000ULL)
		bits |= 0x8000000000000ULL;
	memcpy(&value, &bits, 8);
	return value;
}

static long double of_long(void)
{
	unsigned long long n = next(), bits = next();
	unsigned short head = 0x3ff0 + (n >> 8) % 24;
	long double value = 0;
	if (n % 4 == 0)
		return of_double();
	if (n % 4 == 1)
		head = (n >> 8) % 0x7fff;
	bits = head ? bits | 1ULL << 63 : bits >> 1;
	head |= n >> 63 << 15;
	memcpy(&value, &bits, 8);
	memcpy((char *)&value + 8, &head, 2);
	return value;
}

#define CALL(size, call) \
	do { \
		feclearexcept(FE_ALL_EXCEPT); \
		__typeof__(call) got = call; \
		to->raised = fetestexcept(NOTED); \
		memset(to->value, 0, sizeof to->value); \
		memcpy(to->value, &got, size); \
		to++; \
	} while (0);

#define ONE(name) CALL(8, name(d)) CALL(4, name##f(s)) CALL(10, name##l(l))
#define TWO(name) CALL(8, name(d, e)) CALL(4, name##f(s, t)) CALL(10, name##l(l, m))
#define WHOLE(name) CALL(8, name(d)) CALL(8, name##f(s)) CALL(8, name##l(l))
#define NARROW(name) CALL(8, name(d)) CALL(4, name##f(s))

/* The rows, as the test names them. */
#define ALL \
	ONE(acos) ONE(acosh) ONE(asin) ONE(asinh) ONE(atan) ONE(atanh) ONE(cbrt) ONE(ceil) ONE(cos) ONE(cosh) ONE(erf) ONE(erfc) \
	ONE(exp) ONE(exp10) ONE(exp2) ONE(expm1) ONE(fabs) ONE(floor) ONE(lgamma) ONE(log) ONE(log10) ONE(log1p) ONE(log2) \
	ONE(logb) ONE(nearbyint) ONE(rint) ONE(round) ONE(sin) ONE(sinh) ONE(sqrt) ONE(tan) ONE(tanh) ONE(tgamma) ONE(trunc) \
	TWO(atan2) TWO(copysign) TWO(fdim) TWO(fmax) TWO(fmin) TWO(fmod) TWO(hypot) TWO(nextafter) TWO(pow) TWO(remainder) \
	WHOLE(llrint) WHOLE(llround) NARROW(j0) NARROW(j1) NARROW(y0) NARROW(y1)

static struct result *run(struct result *to, unsigned long long seed)
{
	static const int modes[] = { FE_TONEAREST, FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO };
	state = seed;
	for (int n = 0; n < INPUTS; n++) {
		volatile float s = of_float(), t = of_float();
		volatile double d = of_double(), e = of_double();
		volatile long double l = of_long(), m = of_long();
		fesetround(modes[n % 5]);
		ALL
	}
	return to;
}

#ifdef GUEST
/* The seed, and then the results. */
#define SEED (*(volatile unsigned long long *)0x100000)
#define RESULTS ((struct result *)0x100010)

__attribute__((noreturn)) static void halt(void)
{
	run(RESULTS, SEED);
	for (;;)
		__asm__ volatile("hlt");
}

__attribute__((naked, section(".text.first"))) void guest(void)
{
	__asm__ volatile("mov $0x1ff000, %%esp; call *%0" : : "r"(halt));
}
#else
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **seeds)
{
	static struct result results[INPUTS * 160];
	for (int n = 1; n < count; n++) {
		struct result *end = run(results, strtoull(seeds[n], 0, 16));
		fwrite(results, sizeof *results, end - results, stdout);
	}
	return 0;
}
#endif
