/* A function with typed arguments, for a program with debugging information. */
#include <stdio.h>

struct point {
	int x;
	const char *name;
	unsigned flags : 3;
};

__attribute__((noipa)) static long area(struct point *p, unsigned char scale)
{
	return p->x * scale;
}

int main(void)
{
	struct point p = { -3, "here", 5 };

	/* A page that was never read cannot be read by probes. */
	printf("%s\n", p.name);
	printf("area %ld\n", area(&p, 4));
	return 0;
}
