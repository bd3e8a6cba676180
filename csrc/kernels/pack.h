/* pack.h - activations as the chosen set wants them. */
#ifndef SLUICE_KERNELS_PACK_H
#define SLUICE_KERNELS_PACK_H
#include "kernels/arguments.h"

/* Packs the activations of products as the set wants them, those of several once.  Without memory
 * they stay as they are: the bits are the same. */
void pack_products(product *p, int32_t n_product);
#endif
