BEGIN
{
    printf("%d %d %d %d %d %d\n", S_B, S_C, M_B, (long long)B_B, N_A, N_B);
    printf("%d %d %d %d %d\n", offsetof(struct foo, b), offsetof(struct foo, c), offsetof(struct foo, d),
        offsetof(struct foo, e), sizeof (struct foo));
    this->p = (struct foo *)&`the_foo;
    printf("%d %d %d\n", this->p->a, this->p->b, this->p->c);
    printf("%d %d %d %x %d\n", this->p->d.a, this->p->d.b, this->p->d.c, this->p->d.d, this->p->d.e);
    printf("%d %d %d %d\n", this->p->s == S_B, this->p->what == B_B, this->p->f, `the_neg);
    exit(0);
}
