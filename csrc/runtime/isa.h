/* isa.h - an instruction set: its operations, as function pointers, and the set that runs. */
#ifndef SLUICE_RUNTIME_ISA_H
#define SLUICE_RUNTIME_ISA_H
#include <stdint.h>
#include "api/runtime.h"

/* An operation on items begin ... end - 1, run by thread `thread`; arg: its arguments. */
typedef void range_function(const void *arg, int64_t begin, int64_t end, int32_t thread);

/* One instruction set. Behind each operation: the type of its arguments; its items. */
typedef struct isa {
    const char *name;
    int32_t max_chunk_rows;     /* rows of w in a chunk of a GEMM, a multiple of 32 */
    range_function *matmul;     /* matmul_args; rows of w */
    range_function *quantize;   /* quantize_args; tokens */
    range_function *quantize_k; /* the same in blocks of 256 */
    range_function *rmsnorm;    /* rmsnorm_args; rows */
    range_function *rope;       /* rope_args; tokens */
    range_function *attention;  /* attention_args; n_head_kv x blocks of item_tok, or n_part */
    range_function *silu_mul;   /* pair_args; elements */
    range_function *gelu_mul;
    range_function *sigmoid_mul;
    range_function *soft_cap;    /* cap_args; elements */
    range_function *causal_conv; /* conv_args; blocks of CONV_CHANNELS */
    range_function *delta_net;   /* delta_args; heads x blocks of DELTA_COLUMNS */
    void (*cache_store)(void *y, int32_t type, const float *x, int64_t n);
    /* Bytes of int8 activations packed for matmul; 0 or NULL: matmul reads them as they are. */
    int64_t (*packed_bytes)(int32_t block, int64_t n_tok, int64_t n);
    range_function *pack; /* pack_args; micropanels of n_packed tokens (NR) */
    int32_t n_packed;
    int32_t float_kc;         /* KC of packed f32 activations (float_pack.h); 0: not packed */
    int32_t float_min_tokens; /* fewer tokens are not packed */
    int32_t cuts_attention;   /* attention can be split by position (n_part) */
    /* y = n_block blocks at x as what decoded.c multiplies; NULL: matmul reads them as they are */
    void (*decode)(void *y, int32_t type, const uint8_t *x, int64_t n_block);
} isa;
const isa *best_isa(void); /* isa.c: the chosen set, or the best of this machine */
int has_avx_vnni(void);
int has_amx_bf16(void);
extern const isa isa_reference, isa_avx2, isa_avx_vnni, isa_avx512, isa_amx, isa_neon, isa_i8mm;
#endif
