/* tile_check.c - the tile instructions of AMX alone. Built for the processor, and with
 * -DEMULATED_TILES for the emulation; both print the same lines.
 *
 *     tile_check            products of random tiles of all shapes: shape and hash of the result
 *     tile_check bf16       roundings to bf16 (AVX512_BF16, which more processors have)
 *     tile_check fault N    invalid use number N, which the processor must refuse; 65: no such N
 *
 * Exit status 64: this processor does not have the instructions. */
#define _DEFAULT_SOURCE /* syscall */
#include <cpuid.h>
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "kernels/x86/amx_tile.h"
#include "random_u32.h"

enum {
    N_ROUND = 400,
    LARGEST_STRIDE = 96,
    BUFFER_BYTES = TILE_ROWS * LARGEST_STRIDE + TILE_ROW_BYTES
};

static int below(int n) { return (int)(random_u32() % (uint32_t)n); }

/* Does this processor have the instructions that `what` tests? */
static int has_instructions(const char *what)
{
    unsigned int a = 0, b, c, d = 0;
#ifdef EMULATED_TILES
    return (void)what, (void)a, (void)b, (void)c, (void)d, 1;
#else
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    if (!strcmp(what, "bf16"))
        return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 5 & 1;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 3) == 3
        && !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
#endif
}

static uint64_t hash(const void *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)p)[i]) * 0x100000001b3u;
    return h;
}

/* Bits of an f32 whose exponent lies within `reach` of `middle`; with `any`, sometimes any bits. */
static uint32_t float_bits(int middle, int reach, int any)
{
    const int exponent = middle + below(2 * reach + 1) - reach;
    if (any && !below(40))
        return random_u32();
    return (random_u32() & 0x807fffff)
        | (uint32_t)(exponent < 0         ? 0
                         : exponent > 254 ? 254
                                          : exponent)
        << 23;
}

static void fill(uint8_t *to, int floats, int middle, int reach, int any)
{
    for (int i = 0; i < BUFFER_BYTES; i += 4) {
        uint32_t v = floats ? float_bits(middle, reach, any) : random_u32();
        if (floats == 2) /* two bf16 */
            v = (v & 0xffff0000) | float_bits(middle, reach, any) >> 16;
        memcpy(to + i, &v, 4);
    }
}

/* All NaNs become the same one. */
static void one_nan(uint8_t *p, int row_bytes, int stride, int n_row)
{
    const uint32_t nan = 0x7fc00000;
    for (int r = 0; r < n_row; r++)
        for (int i = 0; i < row_bytes; i += 4) {
            uint32_t v;
            memcpy(&v, p + r * stride + i, 4);
            if ((v & 0x7fffffff) > 0x7f800000)
                memcpy(p + r * stride + i, &nan, 4);
        }
}

static void products(void)
{
    static uint8_t sum[BUFFER_BYTES], a[BUFFER_BYTES], b[BUFFER_BYTES], out[BUFFER_BYTES];
    for (int round = 0; round < N_ROUND; round++) {
        const int floats = round % 2, m = 1 + below(16), k = 1 + below(16), n = 1 + below(16);
        const int stride = TILE_ROW_BYTES + 4 * below((LARGEST_STRIDE - TILE_ROW_BYTES) / 4 + 1),
                  reach = round % 3 ? 3 : 60;
        /* products are ordinary, tiny or infinite */
        const int middle = (const int[]){127, 70, 64, 190}[below(4)], any = !below(4);
        tile_shapes shapes = {.palette = 1};
        shapes.n_row[0] = shapes.n_row[4] = (uint8_t)m, shapes.n_row[6] = (uint8_t)k;
        shapes.row_bytes[0] = shapes.row_bytes[6] = (uint16_t)(4 * n),
        shapes.row_bytes[4] = (uint16_t)(4 * k);
        fill(sum, floats, floats ? 2 * middle - 127 : 0, reach, any);
        fill(a, 2 * floats, middle, reach, any);
        fill(b, 2 * floats, middle, reach, any);
        memset(out, 0xa5, BUFFER_BYTES);
        TILE_CONFIG(&shapes);
        if (round % 5)
            TILE_LOAD(0, sum, stride);
        else
            TILE_ZERO(0);
        TILE_LOAD(4, a, stride);
        TILE_LOAD(6, b, stride);
        for (int i = 0; i < 1 + round % 2; i++)
            if (floats)
                TILE_DOT_BF16(0, 4, 6);
            else
                TILE_DOT_INT8(0, 4, 6);
        TILE_STORE(0, out, stride);
        TILE_RELEASE();
        if (floats)
            one_nan(out, 4 * n, stride, m);
        printf("%s %d x %d x %d, stride %d, reach %d: %016llx\n", floats ? "bf16" : "int8", m, k, n,
               stride, reach, (unsigned long long)hash(out, BUFFER_BYTES));
    }
}

__attribute__((target("avx512f"))) static void roundings(void)
{
    for (int round = 0; round < N_ROUND; round++) {
        uint32_t v[32];
        for (int i = 0; i < 32; i++) {
            v[i] = round % 2 ? random_u32() : float_bits(round % 254, 2, 0);
            if (i % 5 == 0)
                v[i] = (v[i] & 0xffff0000) | 0x8000; /* halfway */
        }
        const __m512 low = _mm512_loadu_ps(v), high = _mm512_loadu_ps(v + 16);
        __m512i to;
        NEAREST_BF16(to, low, high);
        printf("%d: %016llx\n", round, (unsigned long long)hash(&to, sizeof to));
    }
}

static int fault(int which)
{
    static uint8_t memory[1024];
    tile_shapes s = {.palette = 1};
    for (int i = 0; i < N_TILE; i++)
        s.n_row[i] = TILE_ROWS, s.row_bytes[i] = TILE_ROW_BYTES;
    switch (which) {
    case 0: s.palette = 2; break;
    case 1: s.zero[13] = 1; break;
    case 2: s.row_bytes[3] = TILE_ROW_BYTES + 1; break;
    case 3: s.n_row[7] = TILE_ROWS + 1; break;
    case 4: s.n_row[2] = 0; break;
    case 5: s.row_bytes[2] = 0; break;
    case 6: s.n_row[8] = s.row_bytes[8] = 4; break;
    case 7: TILE_LOAD(0, memory, 64); return 0;
    case 8: s.n_row[5] = s.row_bytes[5] = 0; break;
    case 9: s.n_row[0] = 15; break;
    case 10: s.row_bytes[4] = 60; break;
    case 11: s.row_bytes[6] = 60; break;
    case 12: s.row_bytes[0] = s.row_bytes[6] = 63; break;
    case 13: break;
    default: return 65;
    }
    TILE_CONFIG(&s);
    if (which == 8)
        TILE_STORE(5, memory, 64);
    if (which == 13)
        TILE_RELEASE();
    TILE_DOT_INT8(0, 4, 6);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "products";
    if (!has_instructions(what))
        return 64;
    if (argc > 2)
        return fault(atoi(argv[2]));
    if (!strcmp(what, "bf16"))
        roundings();
    else
        products();
    return 0;
}
