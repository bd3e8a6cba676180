/* workspace.h - memory for packed activations, or for K and V that attention has converted; reused
 * across calls. */
#ifndef SLUICE_KERNELS_WORKSPACE_H
#define SLUICE_KERNELS_WORKSPACE_H
#include <stdint.h>

enum { PAGE = 4096 };

/* `size` bytes, as aligned as a page, good until the next call; NULL: there is no memory. */
void *workspace_of(int64_t size);
#endif
