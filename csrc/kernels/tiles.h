/* tiles.h - F32, F16, BF16 products in tiles of 2 x 2 or 4 x 1 rows x tokens; included where `tile`
 * is (avx2.h, neon.h). */
#ifndef SLUICE_TILES_H
#define SLUICE_TILES_H

enum { FLOAT_BLOCK = 64 }; /* tokens */

/* Rows begin ... end - 1, tokens t0 ... t1 - 1, in tiles; every tile is the same arithmetic. */
INLINE void tiles(const matmul_args *a, int64_t begin, int64_t end, int64_t t0, int64_t t1,
                  int32_t type)
{
    const int64_t row_bytes = type_row_bytes(type, a->n);
    for (int64_t row = begin, R; row < end; row += R) {
        const uint8_t *w[4];
        R = end - row >= 4 && t1 - t0 == 1 ? 4 : end - row >= 2 ? 2 : 1;
        for (int r = 0; r < R; r++)
            w[r] = (const uint8_t *)a->w + (a->rows ? a->rows[row + r] : row + r) * row_bytes;
        for (int64_t t = t0, T; t < t1; t += T) {
            T = t1 - t >= 2 ? 2 : 1;
            const float *const x[2] = {a->x + t * a->n, a->x + (t + T - 1) * a->n};
            float *y = a->y + t * a->n_row + row;
            if (R == 2 && T == 2)
                tile(y, a->n_row, w, x, a->n, type, 2, 2);
            else if (R == 4)
                tile(y, a->n_row, w, x, a->n, type, 4, 1);
            else
                for (int r = 0; r < R; r++)
                    for (int i = 0; i < T; i++)
                        tile(y + i * a->n_row + r, a->n_row, w + r, x + i, a->n, type, 1, 1);
        }
    }
}

INLINE void matmul_float(const matmul_args *a, int64_t begin, int64_t end, int32_t type)
{
    for (int64_t t = 0; t < a->n_tok;
         t += FLOAT_BLOCK) /* a block of activations and these rows stay in cache */
        tiles(a, begin, end, t, t + FLOAT_BLOCK < a->n_tok ? t + FLOAT_BLOCK : a->n_tok, type);
}
#endif
