/* pack.h - activations as the chosen set wants them. */
#ifndef SLUICE_KERNELS_PACK_H
#define SLUICE_KERNELS_PACK_H
#include "kernels/arguments.h"

/* Packs the activations of products as the set wants them, those of several once.  Returns `more`
 * bytes of memory besides.  Without memory activations stay as they are, and it returns NULL: the
 * bits are the same. */
void *pack_products(product *p, int32_t n_product, int64_t more);
#endif
