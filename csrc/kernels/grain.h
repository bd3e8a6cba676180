/* grain.h - how many items a thread gets at a time. */
#ifndef SLUICE_KERNELS_GRAIN_H
#define SLUICE_KERNELS_GRAIN_H
#include <stdint.h>

/* A grain of at least `min_operations`: small enough to share, large enough to be worth handing
 * out.
 */
static inline int64_t grain_of(int64_t operations_per_item, int64_t min_operations,
                               int64_t multiple)
{
    const int64_t items = 1 + min_operations / (operations_per_item > 0 ? operations_per_item : 1);
    return (items + multiple - 1) / multiple * multiple;
}

enum { SMALL_WORK = 1 << 16 };
#endif
