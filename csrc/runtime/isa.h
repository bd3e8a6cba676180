/* isa.h - an instruction set: its operations, and which one runs. */
#ifndef SLUICE_RUNTIME_ISA_H
#define SLUICE_RUNTIME_ISA_H
#include <stdint.h>
#include "api/runtime.h"

/* An operation over items begin ... end - 1, by thread `thread`; arg: its arguments. */
typedef void range_function(const void *arg, int64_t begin, int64_t end, int32_t thread);

/* One instruction set: each operation, its arguments, and what its items are. */
typedef struct isa {
    const char *name;
    int32_t max_rows;           /* that a share of a product should have, a multiple of 32 */
    range_function *matmul;     /* matmul_args; rows of w */
    range_function *quantize;   /* quantize_args; tokens */
    range_function *quantize_k; /* the same in blocks of 256 */
    range_function *rmsnorm;    /* rmsnorm_args; rows */
    range_function *rope;       /* rope_args; tokens */
    range_function *attention;  /* attention_args; n_head_kv x blocks of item_tok, or n_part */
    range_function *silu_mul;   /* pair_args; elements */
    range_function *gelu_mul;
    range_function *soft_cap; /* cap_args; elements */
    void (*cache_store)(void *y, int32_t type, const float *x, int64_t n);
    /* Bytes of int8 activations as matmul wants them; 0, none: as they are. */
    int64_t (*packed_bytes)(int32_t block, int64_t n_tok, int64_t n);
    range_function *pack; /* pack_args; sets of n_packed tokens */
    int32_t n_packed;
    int32_t float_kc;         /* steps of a piece of f32 activations, packed as float_pack.h has
                                    it; 0: as they are */
    int32_t float_min_tokens; /* tokens for which that pays */
    int32_t cuts_attention;   /* its attention knows steps and parts: else n_part is 0 */
} isa;
const isa *best_isa(void); /* isa.c: the chosen set, or the best that runs here */
int has_avx_vnni(void);
int has_tiles_of_bf16(void);
extern const isa isa_reference, isa_avx2, isa_avx_vnni, isa_avx512, isa_amx, isa_neon, isa_i8mm;
#endif
