/* Types of all kinds, and values of them. */
enum small { S_A = 1, S_B = 200, S_C = 255 };
enum mid { M_A = 1, M_B = 40000 };
enum big { B_A = 1, B_B = 0x80000000u };
enum neg { N_A = -5, N_B = 100 };
struct bits {
    unsigned a : 3;
    int b : 5;
    unsigned c : 9;
    unsigned long long d : 40;
    unsigned char e;
} __attribute__((packed));
struct foo {
    char a;
    int b;
    long c;
    struct bits d;
    int e[7];
    enum small s : 8;
    enum big what;
    _Atomic int f;
};
struct foo the_foo = { -1, -2, -3, { 5, -7, 300, 0x8123456789, 200 }, { 1, 2, 3 }, S_B, B_B, 77 };
enum mid the_mid = M_B;
enum neg the_neg = N_A;

int main64(void)
{
    return 0;
}
