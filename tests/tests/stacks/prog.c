#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the C library's own unwinder finds, then a system call to be probed at. */
__attribute__((noinline)) int leaf(const char *what) {
    void *found[64];
    int count = backtrace(found, 64);
    printf("%s", what);
    for (int n = 0; n < count; n++)
        printf(" %p", found[n]);
    printf("\n");
    syscall(SYS_getpgid, 0);
    return count;
}

__attribute__((noinline)) static int compare(const void *a, const void *b) {
    static int done;
    if (!done++)
        leaf("sorting");
    return *(const int *)a - *(const int *)b;
}

static void handler(int number) {
    (void)number;
    leaf("signal");
}

__attribute__((noinline)) static int deep(int n) {
    char room[64 * (n + 1)];
    memset(room, n, sizeof room);
    return n ? deep(n - 1) + room[1] : leaf("deep");
}

int main(void) {
    int numbers[] = {3, 1, 2};
    void *warm[2];
    backtrace(warm, 2);
    qsort(numbers, 3, sizeof *numbers, compare);
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    return deep(5) < 0;
}
