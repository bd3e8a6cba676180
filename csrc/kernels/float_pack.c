/* float_pack.c - activations in f32, packed once for all products of a group: float_pack.h. */
#include <string.h>
#include "kernels/float_pack.h"
#include "runtime/isa.h"
#include "runtime/threads.h"

int64_t packed_bytes_floats(int64_t n_tok, int64_t n)
{
    if (n_tok < best_isa()->float_min_tokens)
        return 0;
    return float_bytes(n_tok, n) + threads_count() * FLOAT_SETS * (int64_t)sizeof(float_sums);
}

/* n_step steps from element e on of a token that has n, or that is not there: what is missing is
 * zero, as in reference.c's dot. */
static void pack_kc_block(float *to, const float *x, int64_t e, int64_t n, int64_t n_step)
{
    for (int64_t s = 0; s < n_step; s++, to += FLOAT_SET_STEP, e += FLOAT_LANES)
        if (x && e + FLOAT_LANES <= n)
            memcpy(to, x + e, FLOAT_LANES * 4);
        else {
            memset(to, 0, FLOAT_LANES * 4);
            if (x)
                memcpy(to, x + e, (size_t)(n - e) * 4);
        }
}

void pack_floats(const void *arg, int64_t begin, int64_t end, int32_t thread)
{
    const pack_args *p = arg;
    const matmul_args *a = p->a;
    const int64_t n_set = float_sets(a->n_tok), n_step = float_steps(a->n);
    (void)thread;
    for (int64_t set = begin; set < end; set++)
        for (int64_t k = 0; k < n_step; k += p->block) {
            const int64_t n = n_step - k < p->block ? n_step - k : p->block;
            float *const to = (float *)p->packed + float_at(n_set, set, k, n);
            for (int64_t i = 0, t = set * FLOAT_TOKENS; i < FLOAT_TOKENS; i++, t++)
                pack_kc_block(to + i * FLOAT_LANES, t < a->n_tok ? a->x + t * a->n : NULL,
                              k * FLOAT_LANES, a->n, n);
        }
}
