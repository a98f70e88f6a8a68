/* Calls that are nested as deep as a definition says, and something to do at the bottom. */
#include "kernel.h"

#pragma GCC optimize("no-omit-frame-pointer")

volatile uint32_t sum;

__attribute__((noinline)) void work(void)
{
    for (uint32_t n = 0; n < 100000; n++)
        sum += n;
}

__attribute__((noinline)) void down(uint32_t depth)
{
    if (depth > 1)
        down(depth - 1);
    else
        work();
    sum++;
}

int main(void)
{
    down(DEPTH);
    return 42;
}
