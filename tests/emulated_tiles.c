/* emulated_tiles.c - AMX's tiles in C, a set of eight for each thread (Intel SDM 2, LDTILECFG,
 * TILELOADD, TILESTORED, TDPBSSD, TDPBF16PS).
 *
 * What would be a fault of the processor (#GP, #UD) is a line and an abort.  Of memory only the
 * rows x bytes of a tile's shape are read and written.  Two things are stricter than the processor:
 * a load that was interrupted is not taken up again (start_row), and who configures tiles must
 * release them before they are configured anew, as kernels do that leave none behind.
 *
 * TDPBF16PS does not look at MXCSR: nearest even, what is below 2^-126 counts as 0 before and
 * after.  Here MXCSR is set so and the processor's own fma does it, unlike reference_fast.c, which
 * takes care of small numbers itself. */
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
static _Thread_local tile held[N_TILE];

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
    memset(held, 0, sizeof held);
}

void emulated_release(void)
{
    configured = 0;
    memset(held, 0, sizeof held);
}

static void need_tile(int i)
{
    NEED(configured, "tile %d, but none is configured", i);
    NEED(shape.n_row[i], "tile %d has no shape", i);
}

void emulated_load(int i, const void *p, int64_t stride)
{
    need_tile(i);
    memset(&held[i], 0, sizeof held[i]);
    for (int r = 0; r < shape.n_row[i]; r++)
        memcpy(held[i].row[r], (const uint8_t *)p + r * stride, shape.row_bytes[i]);
}

void emulated_store(int i, void *p, int64_t stride)
{
    need_tile(i);
    for (int r = 0; r < shape.n_row[i]; r++)
        memcpy((uint8_t *)p + r * stride, held[i].row[r], shape.row_bytes[i]);
}

void emulated_zero(int i)
{
    need_tile(i);
    memset(&held[i], 0, sizeof held[i]);
}

static void need_product(int sum, int a, int b)
{
    need_tile(sum), need_tile(a), need_tile(b);
    NEED(sum != a && sum != b && a != b, "a product into tile %d names a tile twice", sum);
    NEED(shape.row_bytes[sum] % 4 == 0 && shape.row_bytes[a] % 4 == 0
             && shape.row_bytes[b] % 4 == 0,
         "tiles of the product into %d: rows are not of 4 bytes each", sum);
    NEED(shape.n_row[sum] == shape.n_row[a],
         "tile %d has another number of rows than what it is the product of", sum);
    NEED(shape.row_bytes[a] / 4 == shape.n_row[b], "the factors of tile %d do not fit each other",
         sum);
    NEED(shape.row_bytes[sum] == shape.row_bytes[b],
         "tile %d has another number of columns than what it is the product of", sum);
}

void emulated_dot_int8(int sum, int a, int b)
{
    need_product(sum, a, b);
    for (int m = 0; m < shape.n_row[sum]; m++) {
        uint32_t total[TILE_ROW_BYTES / 4]; /* int32 that wraps */
        memcpy(total, held[sum].row[m], sizeof total);
        for (int k = 0; k < shape.n_row[b]; k++) {
            const int8_t *p = (const int8_t *)held[a].row[m] + 4 * k,
                         *q = (const int8_t *)held[b].row[k];
            for (int n = 0; n < TILE_ROW_BYTES / 4; n++) /* b is 0 beyond its columns */
                total[n] += (uint32_t)(p[0] * q[4 * n] + p[1] * q[4 * n + 1] + p[2] * q[4 * n + 2]
                                       + p[3] * q[4 * n + 3]);
        }
        memcpy(held[sum].row[m], total, sizeof total);
    }
}

/* Not inlined: so no operation on floats leaves the stretch in which MXCSR is another. */
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
    add_products(&held[sum], &held[a], &held[b], shape.n_row[sum], shape.n_row[b],
                 shape.row_bytes[sum] / 4);
    _mm_setcsr(before);
}

/* VCVTNE2PS2BF16: ties to even, 0 for what is below 2^-126, NaN quiet. */
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
typedef int no_such_processor; /* ISO C wants a declaration */
#endif
