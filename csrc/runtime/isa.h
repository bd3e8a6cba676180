/* isa.h - an instruction set: its operations, and which one runs. */
#ifndef SLUICE_RUNTIME_ISA_H
#define SLUICE_RUNTIME_ISA_H
#include <stdint.h>
#include "api/runtime.h"

/* One instruction set: each operation over a range of items. */
typedef struct isa {
    const char *name;
    int32_t most_rows; /* that a share of a product should have, a multiple of 32 */
    void (*matmul)(const void *, int64_t, int64_t, int32_t);    /* matmul_args; items: rows of w */
    void (*quantize)(const void *, int64_t, int64_t, int32_t);  /* quantize_args; items: tokens */
    void (*quantize_k)(const void *, int64_t, int64_t, int32_t); /* the same in blocks of 256 */
    void (*rmsnorm)(const void *, int64_t, int64_t, int32_t);   /* rmsnorm_args; items: rows */
    void (*rope)(const void *, int64_t, int64_t, int32_t);      /* rope_args; items: tokens */
    void (*attention)(const void *, int64_t, int64_t, int32_t); /* attention_args; items: n_head_kv x blocks of item_tok, or n_part */
    void (*silu_mul)(const void *, int64_t, int64_t, int32_t);  /* pair_args; items: elements */
    void (*gelu_mul)(const void *, int64_t, int64_t, int32_t);
    void (*soft_cap)(const void *, int64_t, int64_t, int32_t);  /* cap_args; items: elements */
    void (*cache_store)(void *, int32_t, const float *, int64_t);
    int64_t (*packed_bytes)(int32_t block, int64_t n_tok, int64_t n); /* of int8 activations as matmul wants them; 0, none: as they are */
    void (*pack)(const void *, int64_t, int64_t, int32_t);      /* pack_args; items: sets of n_packed tokens */
    int32_t n_packed;
    int32_t float_piece; /* steps of a piece of f32 activations, packed as float_pack.h has it; 0: as they are */
    int32_t float_fewest; /* tokens for which that pays */
    int32_t cuts_attention; /* its attention knows steps and parts: else n_part is 0 */
} isa;
const isa *best_isa(void); /* isa.c: the chosen set, or the best that runs here */
int has_avx_vnni(void);
int has_tiles_of_bf16(void);
extern const isa isa_reference, isa_avx2, isa_avx_vnni, isa_avx512, isa_amx, isa_neon, isa_i8mm;
#endif
