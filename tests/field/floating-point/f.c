#define NO __attribute__((noipa))
struct pair { int x, y; };
struct all {
    float f; double d; int i; float a[2]; long double l; _Complex float c; double zero; double small;
} all = { 12.141422f, 1.5, 7, { 0.25f, -1e30f }, -2.5L, 1.0f, 0, 1e-300 };
NO double fl(double x, int k) { return x * k; }
NO float single(float a, float b) { return a; }
NO long double ext(long double l, int n) { return l / 4; }
NO int take(void *r, const char *s, double d, signed char c, short h) { return c; }
NO struct pair two(struct pair a, int z) { a.x += z; return a; }
NO int many(int a, int b, int c, int d, int e, int f, int g, double p, double q, double r, double s, double t, double u,
            double v, double w, double x, int h) { return h; }
#ifdef __x86_64__
int main64(void)
#else
int main32(void)
#endif
{
    fl(1.5, 3);
    single(0.1f, 12.141422f);
    ext(2, 7);
    take((void *)0, "abc", -2.25, -5, -300);
    two((struct pair){ 5, 4 }, 6);
    return many(1, 2, 3, 4, 5, 6, 7, .5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 8) + all.i;
}
