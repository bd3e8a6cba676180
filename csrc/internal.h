/* internal.h - what C files say to each other and Python does not see. */
#ifndef SLUICE_INTERNAL_H
#define SLUICE_INTERNAL_H
#include <stddef.h>
#include <stdint.h>
#include "kernels.h"

/* GGML type numbers. */
enum { T_F32 = 0, T_F16 = 1, T_Q4_0 = 2, T_Q4_1 = 3, T_Q8_0 = 8, T_BF16 = 30 };

/* Blocks of 32 weights as GGUF stores them.  d, m: IEEE half, the bits. */
typedef struct { uint16_t d; uint8_t q[16]; } block_q4_0;             /* w = d (q - 8); element i in the low half of q[i], i + 16 in the high */
typedef struct { uint16_t d, m; uint8_t q[16]; } block_q4_1;          /* w = d q + m; as above */
typedef struct { uint16_t d; int8_t q[32]; } block_q8_0;              /* w = d q */
_Static_assert(sizeof(block_q4_0) == 18 && sizeof(block_q4_1) == 20 && sizeof(block_q8_0) == 34, "GGUF block sizes");

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f); /* to nearest, ties to even */

/* threads.c: calls work(arg, begin, end, thread) for ranges that cover 0 ... n - 1, each of at least grain items but for
 * the last; which thread gets which range is left to chance, so no result may depend on it. */
void parallel(void (*work)(const void *arg, int64_t begin, int64_t end, int32_t thread), const void *arg, int64_t n,
              int64_t grain);

/* The arguments of kernels.h's functions of the same names. */
typedef struct {
    float *y; const void *w; const int32_t *rows; const float *x; const int8_t *q; const float *d, *s;
    int32_t type, n_tok, n_row, n;
} matmul_args;
typedef struct { float *y; const float *x, *w; int32_t n; float eps; } rmsnorm_args;
typedef struct { int8_t *q; float *d, *s; const float *x; int32_t n; } quantize_args;
typedef struct { float *x; const float *cs; int32_t n_head, head_dim, n_pair, half; } rope_args;
typedef struct { float *y; const float *x; } pair_args;
typedef struct {
    float *o; const float *q; const void *k, *v; float *scores; int64_t n_scores;
    int32_t type, n_tok, pos, n_head, n_head_kv, head_dim, window; float scale;
} attention_args;

/* One instruction set: each operation over a range of items. */
typedef struct {
    const char *name;
    void (*matmul)(const void *, int64_t, int64_t, int32_t);    /* matmul_args; items: rows of w */
    void (*quantize)(const void *, int64_t, int64_t, int32_t);  /* quantize_args; items: tokens */
    void (*rmsnorm)(const void *, int64_t, int64_t, int32_t);   /* rmsnorm_args; items: rows */
    void (*rope)(const void *, int64_t, int64_t, int32_t);      /* rope_args; items: tokens */
    void (*attention)(const void *, int64_t, int64_t, int32_t); /* attention_args; items: n_tok-blocks x n_head_kv */
    void (*silu_mul)(const void *, int64_t, int64_t, int32_t);  /* pair_args; items: elements */
    void (*gelu_mul)(const void *, int64_t, int64_t, int32_t);
    void (*cache_store)(void *, int32_t, const float *, int64_t);
} isa;
extern const isa isa_reference, isa_avx2;
enum { ATTENTION_TOKENS = 8 }; /* tokens an item of attention covers */

static inline float bits_f32(uint32_t u) { union { uint32_t u; float f; } v = { .u = u }; return v.f; }
static inline uint32_t f32_bits(float f) { union { float f; uint32_t u; } v = { .f = f }; return v.u; }
#endif
