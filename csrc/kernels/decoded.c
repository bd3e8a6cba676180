/* decoded.c - products with weights of TYPES_DECODED and TYPES_TO_BF16: some rows at a time become
 * BYTES_K or BF16, and the chosen set multiplies these while they are in its caches.
 *
 * Such weights are entries of a table, or digits: finding them takes more instructions than
 * multiplying by one token does. So nothing is lost by storing them first, and the kernels need to
 * know one type more, not one for each. A product with many tokens decodes each row once, too. */
#include "api/formats.h"
#include "formats/types.h"
#include "kernels/decoded.h"
#include "kernels/reference.h"
#include "kernels/shares.h"
#include "runtime/isa.h"

/* Rows at a time: of one token as many as its kernels have side by side; of more whole units, as
 * many as a second-level cache holds besides activations. */
enum { ROWS_OF_ONE = 16, MAX_UNITS = 4, CACHE = 1 << 18 };

/* The type that is multiplied in place of p's. */
static int32_t type_decoded(const product *p)
{
#define BYTES(number, ...) \
    case number: return T_BYTES_K;
#define BF16(number, ...) \
    case number: return T_BF16;
    switch (p->type) {
        TYPES_DECODED(BYTES)
        TYPES_TO_BF16(BF16)
    }
    return p->type;
#undef BF16
#undef BYTES
}

static int64_t row_bytes_of(const product *p) { return type_row_bytes(type_decoded(p), p->n); }

static int64_t rows_at_once(const product *p)
{
    const int64_t units = CACHE / (row_bytes_of(p) * UNIT);
    return p->n_tok == 1 ? ROWS_OF_ONE
                         : UNIT
            * (units < 1               ? 1
                   : units > MAX_UNITS ? MAX_UNITS
                                       : units);
}

int64_t decoded_bytes(const product *p)
{
    const int64_t bytes =
        type_decoded(p) != p->type && best_isa()->decode ? rows_at_once(p) * row_bytes_of(p) : 0;
    return (bytes + 63) / 64 * 64;
}

void matmul_decoded(const product *p, int64_t begin, int64_t end, int32_t thread, void *rows)
{
    if (!rows) {
        matmul_reference(p, begin, end, thread);
        return;
    }
    const int64_t bytes = type_row_bytes(p->type, p->n), step = rows_at_once(p);
    for (int64_t row = begin; row < end; row += step) {
        const int64_t n = end - row < step ? end - row : step;
        for (int64_t i = 0; i < n; i++)
            best_isa()->decode((uint8_t *)rows + i * row_bytes_of(p), p->type,
                               (const uint8_t *)p->w
                                   + (p->rows ? p->rows[row + i] : row + i) * bytes,
                               p->n / type_block(p->type));
        product some = *p;
        some.type = type_decoded(p), some.w = rows, some.rows = NULL, some.y = p->y + row;
        best_isa()->matmul(&some, 0, n, thread);
    }
}
