/* crc32c_pieces.c - checksums of the pieces of a file, on the thread pool. */
#include "api/runtime.h"
#include "runtime/threads.h"

struct pieces {
    uint32_t *crc;
    const uint8_t *p;
    const uint64_t *begin, *end;
};

static void work(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const struct pieces *a = arg;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        a->crc[i] = crc32c(0, a->p + a->begin[i], a->end[i] - a->begin[i]);
}

void crc32c_pieces(uint32_t *crc, const uint8_t *p, const uint64_t *begin, const uint64_t *end,
                   int64_t n)
{
    const struct pieces a = {crc, p, begin, end};

    parallel(work, &a, n, 1);
}
