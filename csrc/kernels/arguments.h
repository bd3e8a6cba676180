/* arguments.h - the arguments of the operations, as the functions of instruction sets get them. */
#ifndef SLUICE_KERNELS_ARGUMENTS_H
#define SLUICE_KERNELS_ARGUMENTS_H
#include "api/kernels.h"

/* One struct for each function of api/kernels.h; the functions of an instruction set get a `const
 * void *` to it. */
typedef product matmul_args;
// clang-format off
/* block: elements of a block, or of f32 steps of a KC block */
typedef struct { const matmul_args *a; void *packed; int32_t block; } pack_args;
typedef struct { float *y; const float *x, *w; int32_t n; float eps; } rmsnorm_args;
typedef struct { int8_t *q; float *d, *s; int16_t *sums; const float *x; int32_t n; } quantize_args;
typedef struct { uint16_t *terms; const float *x; int32_t n_tok, n; } split_args;
typedef struct { float *x; const float *cs; int32_t n_head, head_dim, n_pair, half; } rope_args;
typedef struct { float *y; const float *x; } pair_args;
typedef struct { float *x; float cap; } cap_args;
typedef struct { float *y; const float *x, *w; float *state; int32_t n_tok, n, n_x, n_tap, silu;
} conv_args;
typedef struct { float *o; const float *q, *k, *v, *decay, *beta; float *state;
                 int32_t n_tok, n_head_k, n_head, dim; } delta_args;
// clang-format on
enum {
    CONV_CHANNELS = 64, /* columns of an item of causal_conv */
    DELTA_COLUMNS = 32, /* columns of S of an item of delta_net */
    DELTA_CHAINS = 4    /* its sums over the rows of S */
};
#endif
