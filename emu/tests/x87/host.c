/*
 * Runs x87 instructions on the host's CPU. It reads cases from standard input, each a byte with the number of the
 * instruction and an image of FSAVE (Intel SDM volume 1, figure 8-9), and writes the image after each.
 */
#include <stdio.h>

struct image {
	unsigned char bytes[108];
};

#define RUN(n, instruction)                                                                  \
	case n:                                                                              \
		__asm__ volatile("frstor %0\n\t" instruction "\n\tfnsave %0" : "+m"(image)); \
		break

int main(void)
{
	static char in[1 << 16], out[1 << 16];
	struct image image;
	int which;

	setvbuf(stdin, in, _IOFBF, sizeof in);
	setvbuf(stdout, out, _IOFBF, sizeof out);
	while ((which = getchar()) != EOF) {
		if (fread(&image, sizeof image, 1, stdin) != 1)
			return 1;
		switch (which) {
		RUN(0, "f2xm1");
		RUN(1, "fyl2x");
		RUN(2, "fptan");
		RUN(3, "fpatan");
		RUN(4, "fxtract");
		RUN(5, "fprem1");
		RUN(6, "fprem");
		RUN(7, "fyl2xp1");
		RUN(8, "fsincos");
		RUN(9, "fscale");
		RUN(10, "fsin");
		RUN(11, "fcos");
		default:
			return 2;
		}
		if (fwrite(&image, sizeof image, 1, stdout) != 1)
			return 3;
	}
	return fflush(stdout) != 0;
}
