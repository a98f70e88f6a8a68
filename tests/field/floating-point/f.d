#pragma D option quiet
BEGIN
{
	p = (struct all *)&`all;
	print(*p);
	print(p->f);
	trace(p->d);
	printf(" %f %g %e %.1f %g\n", p->f, p->d, p->d, p->d, p->small);
	@d[p->d] = count();
	@f[p->a[1]] = count();
	@f[p->a[0]] = count();
	exit(256);
}
