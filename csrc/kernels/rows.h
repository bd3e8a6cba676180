/* rows.h - the rows of weights that a kernel reads side by side. */
#ifndef SLUICE_KERNELS_ROWS_H
#define SLUICE_KERNELS_ROWS_H
#include "kernels/arguments.h"
#include "kernels/inline.h"

/* w [n] = the n rows from `row` on; past the end the last row again, whose results are not
 * stored.  row_bytes is type_row_bytes of a row: two divisions, so the caller computes it once. */
INLINE void rows_from(const uint8_t *w[], int n, const matmul_args *a, int64_t row, int64_t end,
                      int64_t row_bytes)
{
    for (int r = 0; r < n; r++) {
        const int64_t i = row + r < end ? row + r : end - 1;
        w[r] = (const uint8_t *)a->w + (a->rows ? a->rows[i] : i) * row_bytes;
    }
}
#endif
