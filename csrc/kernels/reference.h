/* reference.h - functions of the reference that other instruction sets call. */
#ifndef SLUICE_KERNELS_REFERENCE_H
#define SLUICE_KERNELS_REFERENCE_H
#include "kernels/arguments.h"

/* other sets use it for types that they lack */
void matmul_reference(const void *arg, int64_t begin, int64_t end, int32_t thread);
/* reference_blocks.c: y [token * n_row] = one row w of a block type with every token. */
void row_of_blocks(float *y, const matmul_args *a, const uint8_t *w);
#endif
