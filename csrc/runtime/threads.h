/* threads.h - work shared out to the threads of the pool. */
#ifndef SLUICE_RUNTIME_THREADS_H
#define SLUICE_RUNTIME_THREADS_H
#include "api/runtime.h"

/* threads.c: calls work(arg, begin, end, thread) for ranges that cover 0 ... n - 1, each of at
 * least grain items but for the last; which thread gets which range is left to chance, so no result
 * may depend on it. */
void parallel(void (*work)(const void *arg, int64_t begin, int64_t end, int32_t thread),
              const void *arg, int64_t n, int64_t grain);
/* The first item of thread t's share; of the thread after the last, an item that is n or more. */
int64_t first_item(int64_t n, int64_t grain, int32_t t);
/* Where thread t may ask the memory for bytes that it will read in a later call, up to MOST_AHEAD
 * of them, while it waits. */
void look_ahead_at(int32_t t, const void *p, int64_t n_bytes);
#endif
