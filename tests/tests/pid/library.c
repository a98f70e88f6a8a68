/* A library that no program is linked with. */
int shared(int n)
{
	return n + 1;
}
