/* avx512_matvec.c - GEMV (one token) of quantized weights, AVX-512 VNNI.
 * Y[row] = sum_k X[k] * W[row][k]; X int8, Y f32.
 * Micro-kernel: 16 rows, units of 256 elements, KC <= KC_UNITS units. Blocks of 32 in one stream:
 *   16 rows side by side, avx512_side_by_side.h.
 * Registers: one row at a time; lane = element.
 * Packing: none; weights are read as they lie. Exact sums of a row's units wait in the workspace:
 *   two lanes for each of 8 blocks of 32, or the lanes of a K-quant's block, and its scales as
 *   halves. They are folded for 16 rows so that lane = row; then the steps in f32 follow. A row
 *   that is no whole number of units reads on into the next row, whose blocks are multiplied by 0.
 * Overflow: none; avx512_rows_32.h and avx512_rows_256.h give the bounds.
 * Result: bit-identical to reference.c.
 *
 * Limit: memory. Each weight is read once, so prefetching decides, and the processor's own
 * prefetchers decide how:
 *
 *   1 stream   A thread reads its rows in the order of the file and prefetches 16 KB ahead. That is
 *              four pages: the processor's prefetcher starts anew in each, and what it misses is
 *              known by then. Lines come into the second-level cache and, 2 KB before they are
 *              read, into the first. Prefetches from memory into the first-level cache occupy all
 *              its miss buffers and block other loads: so Zen 4 reads Q8_0, Q4_0, Q4_K and Q6_K at
 *              60, 57, 50 and 62 % of what memory gives a thread, in two steps at 87, 82, 85 and
 *              95 %. On Zen 5 both ways do; one thread is 1.15 times as fast with Q4_K, and 1.25
 *              times with Q6_K, in one stream as in 4.
 *   4 streams  A thread reads a row of each quarter of its rows, unit by unit, and prefetches 2 KB
 *              ahead. Emerald Rapids follows several streams at once but each by few lines: Q8_0
 *              and Q4_0 are 1.15 times as fast as in one (91 and 84 % of reading the same bytes; 88
 *              and 82 in two, 89 and 80 in eight). */
#ifdef __AVX512VNNI__
#include "api/runtime.h"
#include "kernels/x86/avx512_rows_256.h"
#include "kernels/x86/avx512_rows_32.h"
#include "kernels/x86/avx512_side_by_side.h"

/* Units at a time. */
INLINE int64_t step_of(int32_t type) { return is_of_k(type) ? 4 : 1; }

/* Asks for so many bytes some way behind w, in one of n_stream streams. */
INLINE void prefetch_ahead(const uint8_t *w, int64_t bytes, int n_stream)
{
    for (int64_t line = 0; line < bytes; line += 64) {
        if (n_stream == 1)
            _mm_prefetch((const char *)w + FAR + line, _MM_HINT_T1);
        _mm_prefetch((const char *)w + NEAR + line, _MM_HINT_T0);
    }
}

/* A part of a row that ends within a unit: its blocks beside those of the next row, which are
 * multiplied by zeros, or beside zeros in `copy`, where none may be read. */
typedef struct {
    int64_t n_block;      /* of the last unit of 32s, 1 to 8 */
    const uint8_t *after; /* what may be read ends here */
    uint8_t copy[BLOCKS * sizeof(block_q8_0)];
} row_end;

INLINE void unit_in_part(workspace *r, int i, row_end *e, const uint8_t *w, int64_t u, int32_t type)
{
    const int32_t bytes = bytes_of_block(type);
    if (w + BLOCKS * bytes > e->after)
        w = memcpy(e->copy, w, (size_t)(e->n_block * bytes));
    if (e->n_block <= BLOCKS / 2)
        unit_of_32(r, i, w, u, 1, type);
    else
        unit_of_32(r, i, w, u, 2, type);
}

/* Units u ... of row i, up to a step of them before unit n; the first is at w, and is number u0 + u
 * of the row. */
INLINE void units_of(workspace *r, int i, row_end *e, const matmul_args *a, const uint8_t *w,
                     int64_t u0, int64_t u, int64_t n, int n_stream, int32_t type)
{
    const int64_t n_here = n - u < step_of(type) ? n - u : step_of(type),
                  is_whole = u + n_here < n || e->n_block == BLOCKS;
    prefetch_ahead(w,
                   is_of_32(type) ? (is_whole ? BLOCKS : e->n_block) * bytes_of_block(type)
                                  : n_here * bytes_of_block(type),
                   n_stream);
    if (is_of_32(type) && !is_whole)
        unit_in_part(r, i, e, w, u, type);
    else if (is_of_32(type))
        unit_of_32(r, i, w, u, 2, type);
    else if (is_of_k(type))
        four_of_k(r, i, w, u, n_here, type);
    else
        unit_of_256(r, i, a, w, u0 + u, u, type);
}

/* The token's n blocks from b0 on to r. */
INLINE void load_tokens(workspace *r, const matmul_args *a, int64_t b0, int64_t n, int32_t type)
{
    if (is_of_32(type))
        load_32(r, a, b0, n, type);
    else if (is_of_k(type))
        load_k(r, a, b0, n);
    else if (!is_packed(type))
        memcpy(r->x, a->q + b0 * UNIT, n * UNIT);
    else
        for (int64_t u = 0; u < n; u++)
            load_packed(r->x[u], a->q + (b0 + u) * UNIT, type);
}

/* Rows begin ... end - 1, n blocks from b0 on; y has what earlier blocks added.  Of 16 rows that
 * are folded together each stream has a part, neighbours. */
INLINE void rows_kc_block(workspace *r, const matmul_args *a, int64_t begin, int64_t end,
                          int64_t b0, int64_t n, int n_stream, int32_t type)
{
    const int64_t each = is_of_32(type) ? BLOCKS : 1, bytes = bytes_of_block(type), u0 = b0 / each,
                  n_unit = (n + each - 1) / each;
    /* own: rows of a stream */
    const int64_t own = (end - begin + n_stream - 1) / n_stream,
                  row_bytes = type_row_bytes(type, a->n);
    const int part = HALF / n_stream;
    row_end e = {n - (n_unit - 1) * each,
                 a->rows ? NULL : (const uint8_t *)a->w + a->n_row * row_bytes,
                 {0}};
    load_tokens(r, a, b0, n, type);
    for (int64_t at = 0; at < own; at += part) {
        const uint8_t *w[HALF];
        float y[2 * HALF] = {0}; /* beyond 16: a part is moved as if it were 16 */
        __mmask16 valid[HALF] = {0};
        for (int s = 0; s < n_stream; s++) {
            const int64_t row = begin + s * own + at,
                          after = begin + (s + 1) * own < end ? begin + (s + 1) * own : end;
            rows_from(w + s * part, part, a, row, after, row_bytes);
            valid[s] = first_lanes(after - row < part ? after - row : part);
            if (b0)
                _mm512_storeu_ps(y + s * part, _mm512_maskz_loadu_ps(valid[s], a->y + row));
        }
        for (int i = 0; i < part; i++)
            for (int64_t u = 0; u < n_unit; u += step_of(type))
                for (int s = 0; s < n_stream; s++)
                    units_of(r, s * part + i, &e, a, w[s * part + i] + (u0 + u) * each * bytes, u0,
                             u, n_unit, n_stream, type);
        __m512 sum = _mm512_loadu_ps(y);
        sum = is_of_32(type) ? add_32(sum, r, a, b0, n, type)
            : is_of_k(type)  ? add_k(sum, r, a, b0, n)
                             : add_256(sum, r, a, b0, n, type);
        _mm512_storeu_ps(y, sum);
        for (int s = 0; s < n_stream; s++)
            _mm512_mask_storeu_ps(a->y + begin + s * own + at, valid[s],
                                  _mm512_loadu_ps(y + s * part));
    }
}

/* Neighbouring rows begin ... end - 1, 16 or more, in blocks of 32. */
INLINE void side_by_side(const matmul_args *a, int64_t begin, int64_t end, int32_t type)
{
    const int64_t row_bytes = type_row_bytes(type, a->n), n_block = a->n / BLOCK;
    int32_t offsets[KC_UNITS * BLOCKS];
    for (int64_t b0 = 0; b0 < n_block; b0 += KC_UNITS * BLOCKS) {
        const int64_t n = n_block - b0 < KC_UNITS * BLOCKS ? n_block - b0 : KC_UNITS * BLOCKS;
        if (offset_of(type))
            load_offsets(offsets, a, b0, n, type);
        for (int64_t row = begin; row < end; row += HALF) {
            /* the last 16 rows may be others' too */
            const int64_t from = row + HALF <= end ? row : end - HALF;
            const __mmask16 own = (__mmask16)(0xffff << (row - from));
            const rows_16 w = rows_at(
                (const uint8_t *)a->w + from * row_bytes + b0 * bytes_of_block(type), row_bytes);
            const __m512 before =
                b0 ? _mm512_maskz_loadu_ps(own, a->y + from) : _mm512_setzero_ps();
            _mm512_mask_storeu_ps(a->y + from, own,
                                  add_side_by_side(before, offsets, a, w, b0, n, type));
        }
    }
}

void matvec_avx512(const matmul_args *a, int64_t begin, int64_t end)
{
    const int64_t block = type_block(a->type), n_block = a->n / block,
                  max = KC_UNITS * UNIT / block;
    const int is_one = matvec_streams() == 1;
    workspace r;
#define CALL(type) \
    side_by_side(a, begin, end, type); \
    return
    if (is_one && !a->rows && end - begin >= HALF)
        switch (a->type) {
            TYPES_32_BITS(CASE_OF_TYPE)
            TYPES_32_BYTES(CASE_OF_TYPE)
            TYPES_32_INDICES(CASE_OF_TYPE)
        }
#undef CALL
#define CALL(type) \
    is_one ? rows_kc_block(&r, a, begin, end, b0, n, 1, type) \
           : rows_kc_block(&r, a, begin, end, b0, n, 4, type)
    for (int64_t b0 = 0; b0 < n_block; b0 += max) {
        const int64_t n = n_block - b0 < max ? n_block - b0 : max;
        switch (a->type) {
            TYPES_32_BITS(CASE_OF_TYPE)
            TYPES_32_BYTES(CASE_OF_TYPE)
            TYPES_32_INDICES(CASE_OF_TYPE)
            TYPES_256(CASE_OF_TYPE)
        }
    }
#undef CALL
}
#endif
