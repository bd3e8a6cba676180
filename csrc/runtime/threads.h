/* threads.h - parallel loops on the thread pool. */
#ifndef SLUICE_RUNTIME_THREADS_H
#define SLUICE_RUNTIME_THREADS_H
#include "api/runtime.h"

/* Calls work(arg, begin, end, thread) for chunks that cover 0 ... n - 1, each of `grain` items or
 * more, except the last. Which thread runs which chunk is arbitrary; no result may depend on it. */
void parallel(void (*work)(const void *arg, int64_t begin, int64_t end, int32_t thread),
              const void *arg, int64_t n, int64_t grain);
/* The first item of thread t's own range; for t = threads_count(), a number of n or more. */
int64_t first_item(int64_t n, int64_t grain, int32_t t);
/* While idle, thread t prefetches n_bytes at p, 512 KiB at most, which it will read in a later
 * call. */
void prefetch_when_idle(int32_t t, const void *p, int64_t n_bytes);
#endif
