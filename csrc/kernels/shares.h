/* shares.h - a group of products, cut into shares of units of rows, over the threads. */
#ifndef SLUICE_KERNELS_SHARES_H
#define SLUICE_KERNELS_SHARES_H
#include "kernels/arguments.h"

enum { UNIT = 32 }; /* rows of a unit: a multiple of every kernel's panel */

static inline int64_t units_of(const matmul_args *a)
{
    return ((int64_t)a->n_row + UNIT - 1) / UNIT;
}

int64_t units_of_group(const product *p, int32_t n_product);
/* Units of a share of a group that begins with product p. */
int64_t share_of(const product *p, int64_t n_unit);
/* Names to each thread the first weights of its share of a group with one token, as far as they lie
 * in one matrix; of none, nothing. */
void name_shares(const product *p, int32_t n_product);
#endif
