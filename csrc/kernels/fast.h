/* fast.h - the arithmetic of `--arithmetic fast`: products of split_bf16's terms. */
#ifndef SLUICE_KERNELS_FAST_H
#define SLUICE_KERNELS_FAST_H
#include "kernels/arguments.h"
#include "runtime/isa.h"

/* A set's own products of such terms. */
typedef struct {
    const isa *set;
    range_function *split;  /* split_args; sets of 16 tokens */
    range_function *matmul; /* matmul_args; rows of w */
} fast_products;
const fast_products *best_fast(void); /* of the chosen set; NULL: it has none */

/* reference_fast.c and amx_bf16.c: products of split_bf16's terms, and these.  Elements of a step,
 * and of a KC block. */
enum { FAST_STEP = 32, FAST_KC = 256, FAST_ROWS = 1024, FAST_TOKENS = 256 };
/* matmul_args; items: rows of w */
void matmul_fast_reference(const void *arg, int64_t begin, int64_t end, int32_t thread);
void matmul_fast_amx(const void *arg, int64_t begin, int64_t end, int32_t thread);
/* split_args; items: sets of 16 tokens */
void split_reference(const void *arg, int64_t begin, int64_t end, int32_t thread);
void split_amx(const void *arg, int64_t begin, int64_t end, int32_t thread);
#endif
