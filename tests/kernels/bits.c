/* bits.c - print the hash of each kernel's result on fixed pseudo-random input.
 *
 *     bits SET THREADS
 *
 * Exit status 64: this machine does not have the instruction set. The program builds for any
 * processor; test_bits.py builds it for this one and for AArch64, which qemu runs, and compares the
 * lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/formats.h"
#include "api/kernels.h"
#include "api/runtime.h"
#include "api/sampling.h"
#include "formats/types.h"
#include "runtime/float_bits.h"
#include "random_u32.h"

/* f32 [n], uniform within +-reach */
static float *floats(int64_t n, float reach)
{
    float *x = malloc((size_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        x[i] = ((float)(random_u32() >> 8) * 0x1p-23f - 1.0f) * reach;
    return x;
}

static void show(const char *name, const void *p, int64_t n_bytes)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (int64_t i = 0; i < n_bytes; i++)
        h = (h ^ ((const uint8_t *)p)[i]) * 0x100000001b3u;
    printf("%s %016llx\n", name, (unsigned long long)h);
}

static uint8_t *float_weights(int32_t type, int64_t n)
{
    const int64_t n_bytes = type_row_bytes(type, n);
    uint8_t *w = malloc((size_t)n_bytes);
    if (type == T_F32)
        return memcpy(w, floats(n, 1), (size_t)n_bytes);
    for (int64_t i = 0; i < n_bytes; i++) /* only small exponents */
        w[i] = i % 2 ? (uint8_t)((random_u32() & 0x83) | (type == T_F16 ? 0x30 : 0x3c))
                     : (uint8_t)random_u32();
    return w;
}

/* --arithmetic fast; a set without it shows the result of the reference. */
static void fast_products(const char *name, int32_t type, int32_t n_tok, int32_t n_row, int32_t n)
{
    const char *set = isa_name();
    if (!fast_supported())
        isa_select("reference");
    uint16_t *terms = malloc((size_t)terms_size(n_tok, n) * 2);
    product p = {malloc((size_t)n_tok * n_row * 4),
                 float_weights(type, (int64_t)n_row * n),
                 NULL,
                 floats((int64_t)n_tok * n, 3),
                 NULL,
                 NULL,
                 NULL,
                 NULL,
                 type,
                 n_tok,
                 n_row,
                 n,
                 terms,
                 NULL,
                 NULL,
                 0};
    split_bf16(terms, p.x, n_tok, n);
    matmuls(&p, 1);
    show(name, p.y, (int64_t)n_tok * n_row * 4);
    isa_select(set);
}

/* at, n_half: offset and number of the f16 fields of a block; they become small numbers. */
static void products(const char *name, int32_t type, int at, int n_half, int32_t n_tok,
                     int32_t n_row, int32_t n)
{
    const int64_t row_bytes = type_row_bytes(type, n);
    const int block_bytes = (int)type_row_bytes(type, type_block(type));
    uint8_t *w = type_block(type) == 1 ? float_weights(type, (int64_t)n_row * n)
                                       : malloc((size_t)(n_row * row_bytes));
    for (int64_t i = 0; type_block(type) > 1 && i < n_row * row_bytes; i++)
        w[i] = (uint8_t)random_u32();
    for (int64_t i = at; type_block(type) > 1 && i < n_row * row_bytes; i += block_bytes)
        for (int h = 0; h < n_half; h++)
            w[i + 2 * h + 1] = (uint8_t)((w[i + 2 * h + 1] & 0x83) | 0x20);
    /* scales that are no such field */
    for (int64_t i = at; type == T_MXFP4 && i < n_row * row_bytes; i += block_bytes)
        w[i] = 112 | (w[i] & 15);
    for (int64_t i = at; type == T_IQ1_M && i < n_row * row_bytes; i += block_bytes)
        w[i + 7] = (uint8_t)(0x20 | (w[i + 7] & 15));
    float *x = floats((int64_t)n_tok * n, 3), *y = malloc((size_t)n_tok * n_row * 4);
    int8_t *q = malloc((size_t)n_tok * n);
    float *d = malloc((size_t)n_tok * n), *s = malloc((size_t)n_tok * n);
    int16_t *sums = malloc((size_t)n_tok * n);
    if (type_block(type) == 32) {
        quantize_q8(q, d, s, x, n_tok, n);
        show("quantize_q8 q", q, (int64_t)n_tok * n);
        show("quantize_q8 d", d, (int64_t)n_tok * n / 32 * 4);
        show("quantize_q8 s", s, (int64_t)n_tok * n / 32 * 4);
    } else if (type_block(type) == 256) {
        quantize_q8_k(q, d, sums, x, n_tok, n);
        show("quantize_q8_k q", q, (int64_t)n_tok * n);
        show("quantize_q8_k d", d, (int64_t)n_tok * n / 256 * 4);
        show("quantize_q8_k sums", sums, (int64_t)n_tok * n / 16 * 2);
    }
    matmul(y, type, w, NULL, x, q, d, s, sums, n_tok, n_row, n);
    show(name, y, (int64_t)n_tok * n_row * 4);
    float *row = malloc((size_t)n * 4);
    dequantize_row(row, type, w, n);
    show("dequantize_row", row, (int64_t)n * 4);
}

static void attend(int32_t type, int32_t n_tok, int32_t pos, int32_t n_head, int32_t n_head_kv,
                   int32_t dim, int32_t window, float cap)
{
    const int64_t n = (int64_t)(pos + n_tok) * n_head_kv * dim;
    float *q = floats((int64_t)n_tok * n_head * dim, 1),
          *o = malloc((size_t)n_tok * n_head * dim * 4);
    void *k = malloc((size_t)n * 4), *v = malloc((size_t)n * 4);
    cache_store(k, type, floats(n, 2), n);
    cache_store(v, type, floats(n, 2), n);
    show("cache_store", k, type_row_bytes(type, n));
    float *scores = malloc((size_t)attention_scores(n_tok, pos, n_head, n_head_kv) * 4);
    attention(o, q, type, k, v, scores, n_tok, pos, n_head, n_head_kv, dim, window, 0.125f, cap);
    show("attention", o, (int64_t)n_tok * n_head * dim * 4);
}

/* Weights whose groups differ in magnitude; some groups are zero, some negative throughout. */
static void encode_all(void)
{
    static const int32_t types[] = {T_F16,  T_BF16, T_Q8_0, T_Q4_0, T_Q4_1,
                                    T_Q5_0, T_Q5_1, T_Q4_K, T_Q5_K, T_Q6_K};
    enum { N = 21 * BLOCK_K };
    float *x = floats(N, 1);
    uint8_t *y = malloc(4 * N);
    int32_t beyond;
    for (int i = 0; i < N; i++)
        x[i] = i / 32 % 11 == 3 ? 0
            : i / 32 % 13 == 5
            ? -0.3f
            : (x[i] - (float)(i / 64 % 5)) * bits_f32((uint32_t)(127 - i / 32 % 17) << 23);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (encode_weights(&beyond, y, types[i], x, T_F32, N) >= 0)
            exit(70);
        show(type_name(types[i]), y, type_row_bytes(types[i], N));
    }
}

/* Rows of sharp and of flat logits, with and without kept logits to compare with. */
static void score_all(void)
{
    enum { N = 517, N_ROW = 6 };
    float *x = floats(N_ROW * N, 1), *other = floats(N_ROW * N, 12);
    int32_t tokens[N_ROW];
    logit_score *out = malloc(2 * N_ROW * sizeof *out);
    uint8_t *kept = malloc((size_t)kept_row_bytes(N) * N_ROW);
    for (int i = 0; i < N_ROW; i++) {
        tokens[i] = (int32_t)(random_u32() % N);
        for (int j = 0; j < N; j++)
            x[i * N + j] *= bits_f32((uint32_t)(127 + i * 2) << 23);
    }
    keep_logits(kept, other, N_ROW, N);
    show("keep_logits", kept, kept_row_bytes(N) * N_ROW);
    score_logits(out, x, tokens, NULL, N_ROW, N);
    score_logits(out + N_ROW, x, tokens, kept, N_ROW, N);
    show("score_logits", out, 2 * N_ROW * (int64_t)sizeof *out);
}

/* Layers with a state, in two chunks of which the second goes on from the first. */
static void states(void)
{
    enum { TOKENS = 23, FIRST = 9, HEADS = 6, KEYS = 3, DIM = 45, N = HEADS * DIM };
    float *x = floats(TOKENS * (N + 7), 2), *w = floats(N * 4, 1), *y = floats(TOKENS * N, 1);
    float *state = floats(HEADS * DIM * DIM, 1), *q = floats(TOKENS * KEYS * DIM, 1);
    float *k = floats(TOKENS * KEYS * DIM, 0.1f), *v = floats(TOKENS * N, 2);
    float *decay = floats(TOKENS * HEADS, 1), *beta = floats(TOKENS * HEADS, 3);
    for (int at = 0; at < TOKENS; at += FIRST) {
        const int n = TOKENS - at < FIRST ? TOKENS - at : FIRST;
        causal_conv(y + at * N, x + at * (N + 7) + 5, w, state, n, N, N + 7, 4, at > FIRST);
    }
    show("causal_conv", y, TOKENS * N * 4);
    show("causal_conv, state", state, 3 * N * 4);
    for (int i = 0; i < HEADS; i++)
        w[i] = -0.1f * (float)(i + 1);
    delta_gates(decay, beta, x, w, w + HEADS, TOKENS, HEADS);
    show("delta_gates", decay, TOKENS * HEADS * 4);
    show("delta_gates, beta", beta, TOKENS * HEADS * 4);
    for (int at = 0; at < TOKENS; at += FIRST) {
        const int n = TOKENS - at < FIRST ? TOKENS - at : FIRST;
        delta_net(y + at * N, q + at * KEYS * DIM, k + at * KEYS * DIM, v + at * N,
                  decay + at * HEADS, beta + at * HEADS, state, n, KEYS, HEADS, DIM);
    }
    show("delta_net", y, TOKENS * N * 4);
    show("delta_net, state", state, HEADS * DIM * DIM * 4);
}

int main(int argc, char **argv)
{
    if (argc != 3 || isa_select(argv[1]) || threads_start(atoi(argv[2])))
        return 64;
    static const struct {
        const char *name;
        int32_t type, at, n_half;
    } types[] = {
        {"matmul F32", T_F32, 0, 0},
        {"matmul F16", T_F16, 0, 0},
        {"matmul BF16", T_BF16, 0, 0},
        {"matmul Q8_0", T_Q8_0, 0, 1},
        {"matmul Q4_0", T_Q4_0, 0, 1},
        {"matmul Q4_1", T_Q4_1, 0, 2},
        {"matmul Q5_0", T_Q5_0, 0, 1},
        {"matmul Q5_1", T_Q5_1, 0, 2},
        {"matmul IQ4_NL", T_IQ4_NL, 0, 1},
        {"matmul Q2_K", T_Q2_K, offsetof(block_q2_k, d), 2},
        {"matmul Q3_K", T_Q3_K, offsetof(block_q3_k, d), 1},
        {"matmul Q4_K", T_Q4_K, 0, 2},
        {"matmul Q5_K", T_Q5_K, 0, 2},
        {"matmul Q6_K", T_Q6_K, offsetof(block_q6_k, d), 1},
        {"matmul IQ4_XS", T_IQ4_XS, 0, 1},
        {"matmul IQ2_XXS", T_IQ2_XXS, offsetof(block_iq2_xxs, d), 1},
        {"matmul IQ2_XS", T_IQ2_XS, offsetof(block_iq2_xs, d), 1},
        {"matmul IQ3_XXS", T_IQ3_XXS, offsetof(block_iq3_xxs, d), 1},
        {"matmul IQ1_S", T_IQ1_S, offsetof(block_iq1_s, d), 1},
        {"matmul IQ3_S", T_IQ3_S, offsetof(block_iq3_s, d), 1},
        {"matmul IQ2_S", T_IQ2_S, offsetof(block_iq2_s, d), 1},
        {"matmul IQ1_M", T_IQ1_M, offsetof(block_iq1_m, d), 0},
        {"matmul TQ1_0", T_TQ1_0, offsetof(block_tq1_0, d), 1},
        {"matmul TQ2_0", T_TQ2_0, offsetof(block_tq2_0, d), 1},
        {"matmul MXFP4", T_MXFP4, offsetof(block_mxfp4, d), 0},
        {"matmul NVFP4", T_NVFP4, offsetof(block_nvfp4, d), 0},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const int k = type_block(types[i].type) == 256,
                  step = k                    ? 256
            : type_block(types[i].type) == 64 ? 64
                                              : 32;
        products(types[i].name, types[i].type, types[i].at, types[i].n_half, 1, 19,
                 k ? 1280 : 35 * step);
        products(types[i].name, types[i].type, types[i].at, types[i].n_half, 9, 37,
                 k ? 256 : 3 * step);
        /* rows of small models: 576, 640, 896, 960, 1152 */
        for (int32_t n = step; n <= 1152; n += step) {
            products(types[i].name, types[i].type, types[i].at, types[i].n_half, 1, 33, n);
            products(types[i].name, types[i].type, types[i].at, types[i].n_half, 8, 17, n);
        }
    }
    encode_all();
    score_all();
    products("matmul F16 odd", T_F16, 0, 0, 3, 5, 77);
    for (int i = 0; i < 3; i++) {
        fast_products(types[i].name, types[i].type, 1, 19, 1120);
        fast_products(types[i].name, types[i].type, 35, 97, 290);
    }
    attend(T_F32, 3, 20, 4, 2, 24, 0, 0);
    attend(T_F16, 17, 30, 8, 2, 64, 0, 0);
    attend(T_F16, 20, 5, 6, 6, 80, 7, 0);
    /* fewer items than threads: split by position and by element */
    attend(T_F16, 1, 300, 5, 1, 96, 0, 0);
    attend(T_F16, 1, 310, 8, 4, 64, 0, 0); /* KV heads divide evenly among threads */
    attend(T_F32, 2, 400, 24, 3, 64, 130, 0);
    attend(T_F16, 1, 299, 13, 1, 40, 0, 0);
    attend(T_Q8_0, 17, 30, 8, 2, 64, 0, 0);
    attend(T_Q8_0, 20, 5, 4, 4, 32, 7, 0);
    attend(T_Q8_0, 1, 300, 5, 1, 96, 0, 0);
    attend(T_Q8_0, 1, 40, 18, 2, 128, 0, 0);
    attend(T_F16, 17, 30, 8, 2, 64, 9, 5);
    attend(T_F32, 1, 300, 5, 1, 96, 0, 50);
    attend(T_F16, 1, 310, 8, 4, 64, 0, 30);
    float *x = floats(4096, 90), *up = floats(4096, 2), *w = floats(128, 2), cs[9 * 10 * 2];
    silu_mul(x, up, 4096);
    show("silu_mul", x, 4096 * 4);
    x = floats(4096, 9);
    gelu_mul(x, up, 4096);
    show("gelu_mul", x, 4096 * 4);
    rmsnorm(x, x, w, 35, 117, 1e-5f);
    show("rmsnorm", x, 4096 * 4);
    double freq[10];
    rope_freq(freq, NULL, 10, 10000.0, 1.5);
    show("rope_freq", freq, sizeof freq);
    rope_angles(cs, freq, 1000, 9, 10, 1);
    show("rope_angles", cs, sizeof cs);
    rope(x, cs, 9, 3, 24, 10, 0);
    rope(x, cs, 9, 3, 24, 10, 1);
    show("rope", x, 4096 * 4);
    rope_freq_yarn(freq, 10, 10000.0, 4.0, 4096, 32, 1);
    show("rope_freq_yarn", freq, sizeof freq);
    rope_angles(cs, freq, 1000, 9, 10, 1.25);
    show("rope_angles, scaled", cs, sizeof cs);
    x = floats(4096, 90);
    soft_cap(x, 4096, 30);
    show("soft_cap", x, 4096 * 4);
    add_bias(x, w, 32, 128);
    show("add_bias", x, 4096 * 4);
    scale(x, 4096, 0.22f);
    scale_each(x, w, 32, 128);
    take_columns(x, up + 7, 32, 100, 128);
    show("scale, scale_each, take_columns", x, 4096 * 4);
    sigmoid_mul(x, up, 4096);
    show("sigmoid_mul", x, 4096 * 4);
    states();
    printf("crc32c %08x %08x\n", crc32c(0, (const uint8_t *)up, 4096 * 4),
           crc32c_plain(0, (const uint8_t *)up, 4096 * 4));
    return 0;
}
