/* Functions that end by jumps: to others, through a pointer, out of a recursion. What each call of main64 returns is printed. */
#define APART __attribute__((noinline, noclone))
#define BARRIER(value) __asm__ volatile("" : "+r"(value))

APART long ends(long a, long b)
{
	BARRIER(a);
	return a * 3 + b;
}

APART long one(long a, long b)
{
	BARRIER(a);
	return ends(b, a);
}

APART long two(long a, long b)
{
	return a == 1000 ? -1 : one(a + 1, b);
}

static long (*volatile pointer)(long, long) = two;

/* An indirect jump, at which no probe fires. */
APART long indirect(long a, long b)
{
	return pointer(a, b);
}

APART long three(long a, long b)
{
	return indirect(a ^ 5, b);
}

APART long deep(long n, long a)
{
	if (n == 0)
		return two(a, n);
	a = deep(n - 1, a);
	BARRIER(a);
	return three(a, n);
}

static void put(char c)
{
	__asm__ volatile("outb %0, %1" : : "a"(c), "d"((short)0x3f8));
}

static void number(long value)
{
	if (value < 0) {
		put('-');
		value = -value;
	}
	if (value >= 10)
		number(value / 10);
	put((char)('0' + value % 10));
}

static APART void say(const char *name, long value)
{
	while (*name)
		put(*name++);
	put(' ');
	number(value);
	put('\n');
}

#define SAY(function, ...) say(#function, function(__VA_ARGS__))

void main64(void)
{
	for (long i = 0; i < 40; i++) {
		SAY(one, i, 7);
		SAY(two, i % 3 ? i : 1000, 9);
		SAY(three, i, 2);
		SAY(deep, i % 5, i);
	}
}
