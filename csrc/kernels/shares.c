/* shares.c - how products are shared out. */
#include <stddef.h>
#include "api/formats.h"
#include "kernels/grain.h"
#include "kernels/shares.h"
#include "runtime/isa.h"
#include "runtime/threads.h"

/* Units of a share: at most 128 rows, so that it stays in the second-level cache, or 256 for tiles;
 * of one token, which reads weights in memory's order, 256, long enough to begin and short enough
 * to end together.  As large as that allows, since a share prepares weights or activations, but as
 * many for each thread, two or more; one, where two would be too small to be worth handing out. */
enum { ROWS_OF_ONE = 256 };

int64_t share_of(const product *p, int64_t n_unit)
{
    const int64_t max = (p->n_tok == 1 ? ROWS_OF_ONE : best_isa()->max_chunk_rows) / UNIT,
                  n_thread = threads_count(), round = max * n_thread;
    const int64_t min = grain_of((int64_t)p->n * p->n_tok * UNIT, SMALL_WORK * 4, 1);
    int64_t n_share = (n_unit > round ? (n_unit + round - 1) / round : 2) * n_thread;
    if (n_unit < min * n_share)
        n_share = n_unit >= min * n_thread || min >= max ? n_thread : (n_unit + min - 1) / min;
    return (n_unit + n_share - 1) / n_share;
}

int64_t units_of_group(const product *p, int32_t n_product)
{
    int64_t n_unit = 0;
    for (int32_t i = 0; i < n_product; i++)
        n_unit += units_of(p + i);
    return n_unit;
}

void name_shares(const product *p, int32_t n_product)
{
    const int64_t n_unit = units_of_group(p, n_product), share = n_unit ? share_of(p, n_unit) : 1;
    for (int32_t t = 0; t < threads_count(); t++) {
        const int64_t begin = first_item(n_unit, share, t), end = first_item(n_unit, share, t + 1);
        int64_t first = 0; /* unit of the group with which product i begins */
        int32_t i = 0;
        while (i < n_product && begin >= first + units_of(p + i))
            first += units_of(p + i++);
        if (i == n_product || begin == end) {
            prefetch_when_idle(t, NULL, 0);
            continue;
        }
        const int64_t row_bytes = type_row_bytes(p[i].type, p[i].n), row = (begin - first) * UNIT,
                      last = (end - first) * UNIT;
        prefetch_when_idle(t, (const uint8_t *)p[i].w + row * row_bytes,
                           ((last < p[i].n_row ? last : p[i].n_row) - row) * row_bytes);
    }
}
