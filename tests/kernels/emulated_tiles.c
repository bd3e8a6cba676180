/* emulated_tiles.c - the tile registers of AMX in C, eight for each thread. Source: Intel SDM 2,
 * LDTILECFG, TILELOADD, TILESTORED, TDPBSSD, TDPBF16PS.
 *
 * Each fault of the processor (#GP, #UD) becomes a message and an abort. Loads and stores access
 * only the rows and bytes of the tile's shape. Two rules are stricter than the processor's: an
 * interrupted load is not resumed (start_row must be 0), and tiles must be released before they are
 * configured again, so a kernel cannot leave any behind.
 *
 * TDPBF16PS ignores MXCSR: it rounds to nearest even and flushes subnormal inputs and results to 0.
 * This file sets MXCSR to these modes and uses the processor's fma. (reference_fast.c flushes small
 * numbers itself.) */
#ifdef __AVX512VNNI__
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/x86/amx_tile.h"
#include "emulated_tiles.h"

typedef struct { _Alignas(64) uint8_t row[TILE_ROWS][TILE_ROW_BYTES]; } tile;

static _Thread_local int configured;
static _Thread_local tile_shapes shape;
static _Thread_local tile tiles[N_TILE];

#define NEED(condition, ...) ((condition) ? (void)0 : fault(__VA_ARGS__))

static void fault(const char *what, int tile)
{
    fprintf(stderr, "emulated tiles: ");
    fprintf(stderr, what, tile);
    fputc('\n', stderr);
    abort();
}

void emulated_config(const tile_shapes *s)
{
    NEED(!configured, "configured, but not released", 0);
    NEED(s->palette == 1, "palette %d", s->palette);
    NEED(s->start_row == 0, "start_row %d", s->start_row);
    for (int i = 0; i < 14; i++)
        NEED(s->zero[i] == 0, "byte %d of the shapes is reserved", 2 + i);
    for (int i = 0; i < 16; i++) {
        NEED(s->row_bytes[i] <= (i < N_TILE ? TILE_ROW_BYTES : 0),
             "too many bytes in a row of tile %d", i);
        NEED(s->n_row[i] <= (i < N_TILE ? TILE_ROWS : 0), "too many rows in tile %d", i);
        NEED(!s->row_bytes[i] == !s->n_row[i], "tile %d has rows or bytes, but not both", i);
    }
    shape = *s;
    configured = 1;
    memset(tiles, 0, sizeof tiles);
}

void emulated_release(void)
{
    configured = 0;
    memset(tiles, 0, sizeof tiles);
}

static void need_tile(int i)
{
    NEED(configured, "tile %d, but none is configured", i);
    NEED(shape.n_row[i], "tile %d has no shape", i);
}

void emulated_load(int i, const void *p, int64_t stride)
{
    need_tile(i);
    memset(&tiles[i], 0, sizeof tiles[i]);
    for (int r = 0; r < shape.n_row[i]; r++)
        memcpy(tiles[i].row[r], (const uint8_t *)p + r * stride, shape.row_bytes[i]);
}

void emulated_store(int i, void *p, int64_t stride)
{
    need_tile(i);
    for (int r = 0; r < shape.n_row[i]; r++)
        memcpy((uint8_t *)p + r * stride, tiles[i].row[r], shape.row_bytes[i]);
}

void emulated_zero(int i)
{
    need_tile(i);
    memset(&tiles[i], 0, sizeof tiles[i]);
}

static void need_product(int sum, int a, int b)
{
    need_tile(sum), need_tile(a), need_tile(b);
    NEED(sum != a && sum != b && a != b, "a product into tile %d names a tile twice", sum);
    NEED(shape.row_bytes[sum] % 4 == 0 && shape.row_bytes[a] % 4 == 0
             && shape.row_bytes[b] % 4 == 0,
         "tiles of the product into %d: rows are not of 4 bytes each", sum);
    NEED(shape.n_row[sum] == shape.n_row[a], "tile %d and its first factor differ in rows", sum);
    NEED(shape.row_bytes[a] / 4 == shape.n_row[b], "the factors of tile %d do not fit each other",
         sum);
    NEED(shape.row_bytes[sum] == shape.row_bytes[b],
         "tile %d and its second factor differ in columns", sum);
}

void emulated_dot_int8(int sum, int a, int b)
{
    need_product(sum, a, b);
    for (int m = 0; m < shape.n_row[sum]; m++) {
        uint32_t total[TILE_ROW_BYTES / 4]; /* int32, wraps */
        memcpy(total, tiles[sum].row[m], sizeof total);
        for (int k = 0; k < shape.n_row[b]; k++) {
            const int8_t *p = (const int8_t *)tiles[a].row[m] + 4 * k,
                         *q = (const int8_t *)tiles[b].row[k];
            for (int n = 0; n < TILE_ROW_BYTES / 4; n++) /* b is 0 beyond its columns */
                total[n] += (uint32_t)(p[0] * q[4 * n] + p[1] * q[4 * n + 1] + p[2] * q[4 * n + 2]
                                       + p[3] * q[4 * n + 3]);
        }
        memcpy(tiles[sum].row[m], total, sizeof total);
    }
}

/* Not inlined: no operation on floats may move out of the code between the changes of MXCSR. */
__attribute__((noinline)) static void add_products(tile *sum, const tile *a, const tile *b,
                                                   int n_row, int n_pair, int n_column)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    for (int m = 0; m < n_row; m++) {
        __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
        for (int k = 0; k < n_pair; k++) {
            int32_t pair;
            memcpy(&pair, a->row[m] + 4 * k, 4);
            const __m512i p = _mm512_set1_epi32(pair), q = _mm512_load_si512(b->row[k]);
            even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(p, 16)),
                                   _mm512_castsi512_ps(_mm512_slli_epi32(q, 16)), even);
            odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(p, upper)),
                                  _mm512_castsi512_ps(_mm512_and_si512(q, upper)), odd);
        }
        const __m512 total = _mm512_add_ps(_mm512_load_ps(sum->row[m]), _mm512_add_ps(even, odd));
        _mm512_mask_store_ps(sum->row[m], (__mmask16)((1 << n_column) - 1), total);
    }
}

void emulated_dot_bf16(int sum, int a, int b)
{
    enum { FLUSH_TO_ZERO = 0x8000, NO_EXCEPTIONS = 0x1f80, DENORMALS_ARE_ZERO = 0x40 };
    const unsigned int before = _mm_getcsr();
    need_product(sum, a, b);
    _mm_setcsr(FLUSH_TO_ZERO | NO_EXCEPTIONS | DENORMALS_ARE_ZERO);
    add_products(&tiles[sum], &tiles[a], &tiles[b], shape.n_row[sum], shape.n_row[b],
                 shape.row_bytes[sum] / 4);
    _mm_setcsr(before);
}

/* VCVTNE2PS2BF16: rounds to nearest even, subnormals become 0, NaNs quiet. */
static uint16_t nearest(float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    if ((u & 0x7f800000) == 0)
        return (uint16_t)(u >> 16 & 0x8000);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

void emulated_bf16(void *to, const float low[16], const float high[16])
{
    uint16_t v[32];
    for (int i = 0; i < 32; i++)
        v[i] = nearest(i < 16 ? low[i] : high[i - 16]);
    memcpy(to, v, sizeof v);
}
#else
typedef int no_such_processor; /* ISO C requires a declaration */
#endif
