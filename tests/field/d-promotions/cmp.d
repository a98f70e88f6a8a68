struct bits {
	unsigned int low:3;
};

struct bits b;

BEGIN
{
	c = (signed char)-56;
	uc = (unsigned char)200;
	s = (short)-1;
	us = (unsigned short)65535;
	printf("%d %d %d\n", c == uc, s == us, s < us);
	zero = (unsigned char)0;
	printf("%d %d %d\n", zero - 1 < zero, ~zero < 0, (1 ? c : uc) < 0);
	one = (unsigned char)1;
	printf("%d %d\n", -one << 8, (unsigned char)(uc + 50));
	b.low = 1;
	printf("%d\n", b.low > -1);
	exit(0);
}
