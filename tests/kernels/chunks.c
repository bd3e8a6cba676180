/* chunks.c - check `parallel` of runtime/threads.c with few items, and with more chunks than a
 * chunk index can count.
 *
 *     chunks THREADS CALLS
 *
 * Exit status 0, or 1 and a message. Each item must be processed once, and the ranges of threads
 * must begin where first_item says. Idle threads may prefetch from addresses that cannot be read;
 * that must change nothing. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include "runtime/threads.h"

enum { MAX_ITEMS = 300000, LARGE_EVERY = 500 };

static atomic_int done[MAX_ITEMS];

static void count(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const int32_t n_thread = *(const int32_t *)arg;
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&done[i], thread >= 0 && thread < n_thread ? 1 : 1000);
}

/* Do the ranges of threads follow each other from 0 to n, each of whole chunks? */
static int are_ranges(int64_t n, int64_t grain, int32_t n_thread)
{
    int64_t before = 0;
    for (int32_t t = 0; t <= n_thread; t++) {
        const int64_t first = first_item(n, grain, t);
        if (first < before || (first < n && first % grain) || (t == 0 && first)
            || (t == n_thread && first < n)
            || (t < n_thread && first - before > (n / grain / n_thread + 2) * grain))
            return 0;
        before = first;
    }
    return 1;
}

int main(int argc, char **argv)
{
    const int32_t n_thread = argc == 3 ? atoi(argv[1]) : 0, n_call = argc == 3 ? atoi(argv[2]) : 0;
    uint32_t random = 1;
    if (n_thread < 1 || n_call < 1 || threads_start(n_thread))
        return 1;
    for (int32_t call = 0; call < n_call; call++) {
        const int64_t max_items = call % LARGE_EVERY == 0 ? MAX_ITEMS : 64;
        random = random * 1664525 + 1013904223;
        const int64_t n = random / 7 % (max_items + 1), grain = 1 + random / 5 % 3;
        for (int32_t t = 0; t < n_thread; t++)
            prefetch_when_idle(t, (const char *)16 + call % 3 * (intptr_t)t, call % 2 << 20);
        if (max_items < MAX_ITEMS && !are_ranges(n, grain, n_thread)) {
            printf("ranges of %d items, chunks of %d or more\n", (int)n, (int)grain);
            return 1;
        }
        parallel(count, &n_thread, n, grain);
        for (int64_t i = 0; i < max_items; i++)
            if (atomic_exchange(&done[i], 0) != (i < n)) {
                printf("call %d of %d items, chunks of %d or more: item %d\n", (int)call, (int)n,
                       (int)grain, (int)i);
                return 1;
            }
    }
    return 0;
}
