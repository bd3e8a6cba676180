/* decoded.h - products with weights of TYPES_DECODED. */
#ifndef SLUICE_KERNELS_DECODED_H
#define SLUICE_KERNELS_DECODED_H
#include "kernels/arguments.h"

/* Bytes that a thread needs for the rows of a product, a multiple of 64; 0 if its weights are
 * multiplied as they are. */
int64_t decoded_bytes(const product *p);
/* Rows begin ... end - 1 of such a product; rows: decoded_bytes of memory, or NULL: the reference
 * runs, with the same bits. */
void matmul_decoded(const product *p, int64_t begin, int64_t end, int32_t thread, void *rows);
#endif
