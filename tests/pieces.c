/* pieces.c - calls of threads.c's parallel, of few items and of more pieces than a ticket can tell: each item is done once.
 *
 * pieces THREADS CALLS: exit status 0, or 1 and what is wrong. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include "internal.h"

enum { MOST_ITEMS = 300000, LARGE_EVERY = 500 };

static atomic_int done[MOST_ITEMS];

static void count(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const int32_t n_thread = *(const int32_t *)arg;
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&done[i], thread >= 0 && thread < n_thread ? 1 : 1000);
}

int main(int argc, char **argv)
{
    const int32_t n_thread = argc == 3 ? atoi(argv[1]) : 0, n_call = argc == 3 ? atoi(argv[2]) : 0;
    uint32_t random = 1;
    if (n_thread < 1 || n_call < 1 || threads_start(n_thread))
        return 1;
    for (int32_t call = 0; call < n_call; call++) {
        const int64_t most = call % LARGE_EVERY == 0 ? MOST_ITEMS : 64;
        random = random * 1664525 + 1013904223;
        const int64_t n = random / 7 % (most + 1), grain = 1 + random / 5 % 3;
        parallel(count, &n_thread, n, grain);
        for (int64_t i = 0; i < most; i++)
            if (atomic_exchange(&done[i], 0) != (i < n)) {
                printf("call %d of %d items, %d at least a piece: item %d\n", (int)call, (int)n, (int)grain, (int)i);
                return 1;
            }
    }
    return 0;
}
