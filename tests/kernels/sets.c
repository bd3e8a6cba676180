/* sets.c - compare the kernels of one instruction set with the reference, byte for byte, on unusual
 * shapes and arbitrary bits.
 *
 *     sets SET          print the name of the set and the number of results compared
 *     sets SET best     print only the name; SET may be "", the best set
 *
 * Exit status 64: this machine does not have the set; 1: a difference. test_kernels.py,
 * test_norms.py and test_attention.py do the same on the processor that runs them. test_bits.py
 * builds this program for AArch64, too, and runs it under qemu. Each buffer ends at a page without
 * access and has poison before it, so a read or write outside is found. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "api/formats.h"
#include "api/kernels.h"
#include "api/runtime.h"
#include "formats/types.h"
#include "runtime/isa.h"
#include "runtime/float_bits.h"
#include "random_u32.h"

enum { MAX_BUFFERS = 64, MARGIN = 256, POISON = 0xff }; /* NaN in f32 and f16 */

static const char *set;
static char what[200];
static int n_compared;

static int32_t one_of(const int32_t *list, int n) { return list[random_u32() % (uint32_t)n]; }
#define ONE_OF(...) one_of((const int32_t[]){__VA_ARGS__}, sizeof (int32_t[]){__VA_ARGS__} / 4)

/* ---- guarded buffers, all freed at once ---- */

static struct {
    uint8_t *map, *p;
    size_t map_bytes;
} buffer[MAX_BUFFERS];
static int n_buffer;

static void *guarded(int64_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE),
                 body = ((size_t)n_bytes + MARGIN + page - 1) / page * page;
    uint8_t *map =
        mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + body, page, PROT_NONE) || n_buffer == MAX_BUFFERS)
        abort();
    memset(map, POISON, body);
    buffer[n_buffer].map = map, buffer[n_buffer].map_bytes = body + page;
    return buffer[n_buffer++].p = map + body - n_bytes;
}

static void free_all(void)
{
    while (n_buffer--) {
        for (uint8_t *p = buffer[n_buffer].map; p < buffer[n_buffer].p; p++)
            if (*p != POISON) {
                fprintf(stderr, "%s: %s wrote before a buffer\n", set, what);
                exit(1);
            }
        munmap(buffer[n_buffer].map, buffer[n_buffer].map_bytes);
    }
    n_buffer = 0;
}

/* f32 [n] within +-reach; one in `odd` of them infinite, NaN, zero, huge or tiny. */
static float *floats(int64_t n, float reach, uint32_t odd)
{
    static const float strange[] = {INFINITY, -INFINITY, NAN,      0.0f,     -0.0f,  3e38f,
                                    -3e38f,   1e-40f,    65519.9f, 65520.0f, -88.0f, 1e-31f};
    float *x = guarded(n * 4);
    for (int64_t i = 0; i < n; i++) {
        x[i] = ((float)(random_u32() >> 8) * 0x1p-23f - 1.0f) * reach;
        if (odd && random_u32() % odd == 0)
            x[i] = strange[random_u32() % (sizeof strange / sizeof *strange)];
    }
    return x;
}

/* memcmp, except that all NaNs are equal. */
static void compare(float *found, float *expected, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        found[i] = isnan(found[i]) ? NAN : found[i];
        expected[i] = isnan(expected[i]) ? NAN : expected[i];
    }
    for (int64_t i = 0; i < n; i++)
        if (memcmp(found + i, expected + i, 4)) {
            fprintf(stderr, "%s: %s: element %lld of %lld is %a, not %a\n", set, what, (long long)i,
                    (long long)n, found[i], expected[i]);
            exit(1);
        }
    n_compared++;
}

/* ---- matrix products ---- */

/* Kinds of f16 fields of a block, or of elements. LARGEST: all bytes are one of 0x00, 0x77, 0x80
 * and 0xff, and activations lie at the ends of their range. */
enum { ORDINARY, SMALL, ANY, LARGEST, N_KINDS };

static const struct {
    const char *name;
    int32_t type, at, n_half;
} types[] = {
    {"F32", T_F32, 0, 0},
    {"F16", T_F16, 0, 0},
    {"BF16", T_BF16, 0, 0},
    {"Q8_0", T_Q8_0, 0, 1},
    {"Q4_0", T_Q4_0, 0, 1},
    {"Q4_1", T_Q4_1, 0, 2},
    {"Q5_0", T_Q5_0, 0, 1},
    {"Q5_1", T_Q5_1, 0, 2},
    {"IQ4_NL", T_IQ4_NL, 0, 1},
    {"Q2_K", T_Q2_K, offsetof(block_q2_k, d), 2},
    {"Q3_K", T_Q3_K, offsetof(block_q3_k, d), 1},
    {"Q4_K", T_Q4_K, 0, 2},
    {"Q5_K", T_Q5_K, 0, 2},
    {"Q6_K", T_Q6_K, offsetof(block_q6_k, d), 1},
    {"IQ4_XS", T_IQ4_XS, 0, 1},
    {"IQ2_XXS", T_IQ2_XXS, offsetof(block_iq2_xxs, d), 1},
    {"IQ2_XS", T_IQ2_XS, offsetof(block_iq2_xs, d), 1},
    {"IQ3_XXS", T_IQ3_XXS, offsetof(block_iq3_xxs, d), 1},
    {"IQ1_S", T_IQ1_S, offsetof(block_iq1_s, d), 1},
    {"IQ3_S", T_IQ3_S, offsetof(block_iq3_s, d), 1},
    {"IQ2_S", T_IQ2_S, offsetof(block_iq2_s, d), 1},
    {"IQ1_M", T_IQ1_M, offsetof(block_iq1_m, d), 0},
    {"TQ1_0", T_TQ1_0, offsetof(block_tq1_0, d), 1},
    {"TQ2_0", T_TQ2_0, offsetof(block_tq2_0, d), 1},
    {"MXFP4", T_MXFP4, offsetof(block_mxfp4, d), 0},
    {"NVFP4", T_NVFP4, offsetof(block_nvfp4, d), 0},
};
enum { N_TYPES = sizeof types / sizeof *types };

static uint16_t half_of(int kind)
{
    const uint16_t bits = (uint16_t)random_u32();
    return kind == ANY    ? bits
        : kind == SMALL   ? bits & 0x83ff
        : kind == LARGEST ? 0x3c00
                          : (bits & 0x83ff) | 0x2c00;
}

static uint8_t *weights(int i, int kind, int32_t n_row, int32_t n)
{
    const int32_t type = types[i].type;
    const int64_t n_bytes = n_row * type_row_bytes(type, n),
                  block = type_row_bytes(type, type_block(type));
    uint8_t *w = guarded(n_bytes), same = (uint8_t)ONE_OF(0x00, 0x77, 0x80, 0xff);
    for (int64_t b = 0; b < n_bytes; b++)
        w[b] = kind == LARGEST && type_block(type) > 1 ? same : (uint8_t)random_u32();
    for (int64_t b = 0; b < n_bytes; b += block) {
        for (int h = 0; h < types[i].n_half; h++) {
            const uint16_t half = half_of(kind);
            memcpy(w + b + types[i].at + 2 * h, &half, 2);
        }
        if (type == T_MXFP4 && kind != ANY)
            w[b] = (uint8_t)(kind == SMALL ? w[b] & 31 : 112 | (w[b] & 15));
        if (type == T_IQ1_M) { /* a quarter of the half above four scales each */
            const uint16_t half = half_of(kind);
            for (int j = 0; j < 4; j++) {
                uint8_t *const high = w + b + offsetof(block_iq1_m, d) + 2 * j + 1;
                *high = (uint8_t)((*high & 15) | (half >> 4 * j & 15) << 4);
            }
        }
        if (type == T_F16 && kind != ANY)
            w[b + 1] = (uint8_t)((w[b + 1] & 0x83) | (kind == SMALL ? 0 : 0x38));
        if ((type == T_F32 || type == T_BF16) && kind != ANY)
            w[b + block - 1] = (uint8_t)((w[b + block - 1] & 0x80) | (kind == SMALL ? 0 : 0x3e));
    }
    return w;
}

static void multiply(int i, int kind, int32_t n_tok, int32_t n_row, int32_t n)
{
    const int32_t type = types[i].type,
                  n_pick = random_u32() % 4 ? 0 : 1 + (int32_t)(random_u32() % 12);
    const int64_t block = type_facts(type)->activations;
    snprintf(what, sizeof what, "matmul %s, kind %d, n_tok %d, n_row %d, n %d, picked %d",
             types[i].name, kind, n_tok, n_row, n, n_pick);
    const uint8_t *w = weights(i, kind, n_row, n);
    float *x = floats((int64_t)n_tok * n, 3, kind == ANY ? 997 : 0);
    int32_t *pick = n_pick ? guarded(n_pick * 4) : NULL;
    for (int32_t r = 0; r < n_pick; r++)
        pick[r] = (int32_t)(random_u32() % (uint32_t)n_row);
    for (int64_t k = 0; kind == LARGEST && k < (int64_t)n_tok * n; k++)
        x[k] = k / n % 2 && k % 3 ? -1.0f : 1.0f;
    const int32_t n_y = n_pick ? n_pick : n_row;
    float *y[2], *d = NULL, *s = NULL;
    int8_t *q = NULL;
    int16_t *sums = NULL;
    if (block > 1)
        q = guarded((int64_t)n_tok * n), d = guarded(n_tok * (n / block) * 4);
    if (block == 32)
        quantize_q8(q, d, s = guarded(n_tok * (n / block) * 4), x, n_tok, n);
    if (block == 256)
        quantize_q8_k(q, d, sums = guarded(n_tok * (n / GROUP_K) * 2), x, n_tok, n);
    for (int ours = 0; ours < 2; ours++) {
        isa_select(ours ? set : "reference");
        y[ours] = guarded((int64_t)n_tok * n_y * 4);
        matmul(y[ours], type, w, pick, block > 1 ? NULL : x, q, d, s, sums, n_tok, n_y, n);
    }
    compare(y[1], y[0], (int64_t)n_tok * n_y);
    free_all();
}

/* A product of --arithmetic fast, if the set has it. */
static void multiply_fast(int i, int kind, int32_t n_tok, int32_t n_row, int32_t n)
{
    const int32_t type = types[i].type,
                  n_pick = random_u32() % 4 ? 0 : 1 + (int32_t)(random_u32() % 12),
                  n_y = n_pick ? n_pick : n_row;
    snprintf(what, sizeof what, "fast matmul %s, kind %d, n_tok %d, n_row %d, n %d, picked %d",
             types[i].name, kind, n_tok, n_row, n, n_pick);
    product p = {NULL, weights(i, kind, n_row, n),
                 NULL, floats((int64_t)n_tok * n, 3, kind == ANY ? 997 : 0),
                 NULL, NULL,
                 NULL, NULL,
                 type, n_tok,
                 n_y,  n,
                 NULL, NULL,
                 NULL, 0};
    int32_t *pick = n_pick ? guarded(n_pick * 4) : NULL;
    float *y[2];
    for (int32_t r = 0; r < n_pick; r++)
        pick[r] = (int32_t)(random_u32() % (uint32_t)n_row);
    p.rows = pick;
    for (int ours = 0; ours < 2; ours++) {
        isa_select(ours ? set : "reference");
        uint16_t *terms = guarded(terms_size(n_tok, n) * 2);
        p.terms = terms, p.y = y[ours] = guarded((int64_t)n_tok * n_y * 4);
        split_bf16(terms, p.x, n_tok, n);
        matmuls(&p, 1);
    }
    compare(y[1], y[0], (int64_t)n_tok * n_y);
    free_all();
}

static void fast_products(void)
{
    isa_select(set);
    for (int round = 0; fast_supported() && round < 40; round++) {
        multiply_fast(round % 3, round / 3 % 3, ONE_OF(1, 2, 15, 16, 17, 33),
                      ONE_OF(1, 9, 16, 31, 70), ONE_OF(1, 17, 31, 64, 255, 256, 300, 610));
        isa_select(set);
    }
}

static void products(void)
{
    static const int32_t shape[][3] = {/* tokens, rows, blocks (of a float type: elements) */
                                       {1, 1, 1},    {1, 7, 2},    {2, 8, 3},   {3, 9, 1},
                                       {4, 17, 5},   {5, 33, 2},   {7, 3, 35},  {6, 16, 32},
                                       {8, 2, 8},    {67, 5, 2},   {1, 19, 33}, {1, 19, 8},
                                       {1, 17, 264}, /* one token, whole units of rows */
                                       {19, 40, 9},  {17, 33, 70}, /* rows longer than a KC block */
                                       {579, 17, 3} /* more tokens than sums in the workspace */};
    for (int i = 0; i < N_TYPES; i++) {
        const int32_t block =
            type_block(types[i].type) > 1 ? (int32_t)type_block(types[i].type) : 1;
        for (size_t j = 0; j < sizeof shape / sizeof *shape; j++)
            multiply(i, ORDINARY, shape[j][0], shape[j][1], shape[j][2] * block);
        /* enough rows for three threads */
        multiply(i, ORDINARY, 66, 70, block == 256 ? 1280 : block == 64 ? 1152 : 1120);
        if (block == 1)
            /* tokens and elements beyond one panel */
            multiply(i, ORDINARY, 261, 35, 1030);
        for (int kind = 0; kind < N_KINDS; kind++)
            for (int round = 0; round < 6; round++) {
                const int32_t n = block == 1 ? ONE_OF(1, 3, 15, 16, 17, 31, 77, 172)
                                             : ONE_OF(1, 2, 3, 5, 9) * block;
                multiply(i, kind, ONE_OF(1, 2, 3, 4, 5, 7, 10, 18), ONE_OF(1, 2, 5, 8, 11, 24), n);
            }
    }
}

/* Rows of every multiple of a block up to 1,152, as in small models. GEMV uses both numbers of
 * streams of avx512_matvec.c. */
static void small_models(void)
{
    static const int32_t streams[] = {1, 4};
    for (int i = 0; i < N_TYPES; i++) {
        const int32_t block = (int32_t)type_block(types[i].type), step = block > 1 ? block : 32;
        for (int32_t n = step; n <= 1152; n += step) {
            for (int k = 0; k < 2; k++) {
                matvec_streams_set(streams[k]);
                multiply(i, n % 96 ? ORDINARY : ANY, 1, ONE_OF(1, 15, 16, 17, 31, 32, 33, 50), n);
                multiply(i, LARGEST, 1, ONE_OF(16, 19, 48), n);
            }
            multiply(i, n % 96 ? ORDINARY : LARGEST, ONE_OF(2, 6, 8, 13), ONE_OF(17, 32, 35), n);
        }
    }
    matvec_streams_set(0);
}

static void quantize(int k)
{
    const int32_t block = k ? 256 : 32, n_tok = ONE_OF(1, 2, 5), n = ONE_OF(1, 2, 7) * block;
    snprintf(what, sizeof what, "quantize %d, n_tok %d, n %d", block, n_tok, n);
    const float *x = floats((int64_t)n_tok * n, ldexpf(1, ONE_OF(-101, -99, -3, 0, 9, 120)), 400);
    int8_t *q[2];
    float *d[2], *s[2];
    int16_t *sums[2];
    for (int ours = 0; ours < 2; ours++) {
        isa_select(ours ? set : "reference");
        q[ours] = guarded((int64_t)n_tok * n), d[ours] = guarded(n_tok * (n / block) * 4);
        s[ours] = guarded(n_tok * (n / block) * 4), sums[ours] = guarded(n_tok * (n / GROUP_K) * 2);
        if (k)
            quantize_q8_k(q[ours], d[ours], sums[ours], x, n_tok, n);
        else
            quantize_q8(q[ours], d[ours], s[ours], x, n_tok, n);
    }
    compare(d[1], d[0], n_tok * (n / block));
    compare(s[1], s[0], n_tok * (n / block));
    if (memcmp(q[0], q[1], (size_t)n_tok * n)
        || memcmp(sums[0], sums[1], (size_t)n_tok * (n / GROUP_K) * 2)) {
        fprintf(stderr, "%s: %s\n", set, what);
        exit(1);
    }
    free_all();
}

/* ---- other operations ---- */

/* dim: elements of a head; 0: chosen at random. */
static void attend(int32_t type, int32_t dim)
{
    const int32_t n_head_kv = dim ? 1 : ONE_OF(1, 2, 3), n_head = n_head_kv * ONE_OF(1, 2, 5);
    if (!dim)
        dim = type == T_Q8_0 ? ONE_OF(32, 96, 320, 1024)
                             : ONE_OF(1, 7, 16, 40, 64, 80, 130, 288, 1024);
    const int32_t n_tok = ONE_OF(1, 2, 18, 35, 70);
    const int32_t pos = n_tok > 2 ? ONE_OF(0, 1, 50) : ONE_OF(0, 50, 260, 321),
                  window = ONE_OF(0, 1, 9, 33);
    const float cap = (float)ONE_OF(0, 0, 2, 50);
    const int64_t n = (int64_t)(pos + n_tok) * n_head_kv * dim, n_q = (int64_t)n_tok * n_head * dim;
    snprintf(what, sizeof what,
             "attention %d, %d of %d heads, dim %d, n_tok %d, pos %d, window %d, cap %g", type,
             n_head_kv, n_head, dim, n_tok, pos, window, cap);
    const float *q = floats(n_q, 1, 0), *keys = floats(n, 2, 0), *values = floats(n, 2, 0);
    float *o[2];
    for (int ours = 0; ours < 2; ours++) {
        isa_select(ours ? set : "reference");
        void *k = guarded(type_row_bytes(type, n)), *v = guarded(type_row_bytes(type, n));
        float *scores = guarded(attention_scores(n_tok, pos, n_head, n_head_kv) * 4);
        cache_store(k, type, keys, n);
        cache_store(v, type, values, n);
        o[ours] = guarded(n_q * 4);
        attention(o[ours], q, type, k, v, scores, n_tok, pos, n_head, n_head_kv, dim, window,
                  0.125f, cap);
    }
    compare(o[1], o[0], n_q);
    free_all();
}

static void stored(void)
{
    const int64_t n = ONE_OF(1, 3, 8, 1003);
    snprintf(what, sizeof what, "cache_store of %d", (int)n);
    const float *x = floats(n, ldexpf(1, ONE_OF(-24, -14, 0, 16)), 9);
    uint16_t *y[2];
    float *wide[2];
    for (int ours = 0; ours < 2; ours++) {
        isa_select(ours ? set : "reference");
        cache_store(y[ours] = guarded(n * 2), T_F16, x, n);
        dequantize_row(wide[ours] = guarded(n * 4), T_F16, y[ours], n);
    }
    compare(wide[1], wide[0], n);
    free_all();
}

/* Element by element, or row by row. */
static void function(int which)
{
    static const char *const names[] = {"silu_mul", "gelu_mul",    "soft_cap",
                                        "rmsnorm",  "sigmoid_mul", "rope"};
    const int32_t n_row = ONE_OF(1, 3, 6), n = ONE_OF(1, 5, 16, 31, 117, 256), n_pair = n / 2,
                  half = (int32_t)(random_u32() % 2);
    snprintf(what, sizeof what, "%s of %d x %d, half %d", names[which], n_row, n, half);
    const float *x = floats(n_row * n, ONE_OF(1, 9, 100), which < 5 ? 20 : 0),
                *other = floats(n_row * n, 2, 0);
    float *y[2];
    for (int ours = 0; ours < 2; ours++) {
        isa_select(ours ? set : "reference");
        y[ours] = memcpy(guarded(n_row * n * 4), x, (size_t)(n_row * n) * 4);
        switch (which) {
        case 0: silu_mul(y[ours], other, n_row * n); break;
        case 1: gelu_mul(y[ours], other, n_row * n); break;
        case 2: soft_cap(y[ours], n_row * n, 30); break;
        case 3: rmsnorm(y[ours], x, other, n_row, n, 1e-5f); break;
        case 4: sigmoid_mul(y[ours], other, n_row * n); break;
        default: rope(y[ours], other, n_row, 1, n, n_pair, half);
        }
    }
    compare(y[1], y[0], n_row * n);
    free_all();
}

/* Layers with a state: what comes out, and the state. */
static void states(void)
{
    const int32_t n_tok = ONE_OF(1, 2, 5, 19), n_key = ONE_OF(1, 2, 3),
                  dim = ONE_OF(1, 3, 8, 31, 32, 45, 64), n_head = n_key * ONE_OF(1, 2),
                  n = n_head * dim, n_tap = ONE_OF(2, 3, 4), silu = ONE_OF(0, 1),
                  n_x = n + ONE_OF(0, 3), n_state = n * dim, n_old = (n_tap - 1) * n;
    snprintf(what, sizeof what, "state of %d tokens, %d of %d heads of %d, %d taps, silu %d", n_tok,
             n_key, n_head, dim, n_tap, silu);
    const float *q = floats(n_tok * n_key * dim, 1, 0), *k = floats(n_tok * n_key * dim, 0.1f, 0),
                *v = floats(n_tok * n, 2, 0), *decay = floats(n_tok * n_head, 1, 0),
                *beta = floats(n_tok * n_head, 1, 0), *x = floats(n_tok * n_x, 2, 0),
                *w = floats(n * n_tap, 1, 0), *s = floats(n_state, 1, 0),
                *old = floats(n_old, 1, 0);
    float *y[2], *state[2], *z[2], *rows[2];
    for (int ours = 0; ours < 2; ours++) {
        isa_select(ours ? set : "reference");
        state[ours] = memcpy(guarded(n_state * 4), s, (size_t)n_state * 4);
        rows[ours] = memcpy(guarded(n_old * 4), old, (size_t)n_old * 4);
        delta_net(y[ours] = guarded(n_tok * n * 4), q, k, v, decay, beta, state[ours], n_tok, n_key,
                  n_head, dim);
        causal_conv(z[ours] = guarded(n_tok * n * 4), x, w, rows[ours], n_tok, n, n_x, n_tap, silu);
    }
    compare(y[1], y[0], n_tok * n);
    compare(state[1], state[0], n_state);
    compare(z[1], z[0], n_tok * n);
    compare(rows[1], rows[0], n_old);
    free_all();
}

int main(int argc, char **argv)
{
    if (argc < 2 || isa_select(argv[1]))
        return 64;
    set = isa_name();
    if (argc > 2)
        return puts(set) < 0;
    threads_start(2);
    products();
    small_models();
    fast_products();
    for (int i = 0; i < 40; i++) {
        quantize(i % 2);
        attend((const int32_t[]){T_F32, T_F16, T_Q8_0}[i % 3], 0);
        stored();
        function(i % 6);
        states();
    }
    for (int i = 0; i < 36; i++) /* head sizes of small models, one KV head */
        attend((const int32_t[]){T_F32, T_F16, T_Q8_0}[i % 3],
               (const int32_t[]){64, 96, 128, 256}[i / 3 % 4]);
    printf("%s %d\n", set, n_compared);
    return 0;
}
