/* pack.c - the activations of a group of products, packed into the workspace, each form of them
 * once. */
#include <stddef.h>
#include "api/formats.h"
#include "kernels/float_pack.h"
#include "kernels/pack.h"
#include "kernels/workspace.h"
#include "runtime/isa.h"
#include "runtime/threads.h"

static int64_t packed_bytes(const product *p)
{
    const int32_t block = type_facts(p->type)->activations;
    if (block == 1)
        return best_isa()->float_kc && !p->terms ? packed_bytes_floats(p->n_tok, p->n) : 0;
    return best_isa()->pack ? best_isa()->packed_bytes(block, p->n_tok, p->n) : 0;
}

static int are_packed_alike(const product *a, const product *b)
{
    const int32_t block = type_facts(a->type)->activations;
    return (block == 1 ? a->x == b->x : a->q == b->q) && a->n_tok == b->n_tok && a->n == b->n
        && block == type_facts(b->type)->activations;
}

static void pack_product(product *p, void *to)
{
    const int32_t block = type_facts(p->type)->activations;
    const int is_float = block == 1;
    const int64_t n_packed = is_float ? FLOAT_TOKENS : best_isa()->n_packed;
    const pack_args a = {p, to, is_float ? best_isa()->float_kc : block};
    p->packed = to;
    parallel(is_float ? pack_floats : best_isa()->pack, &a, (p->n_tok + n_packed - 1) / n_packed,
             1);
}

enum { LINE = 64 }; /* bytes of a cache line */

void *pack_products(product *p, int32_t n_product, int64_t more)
{
    int64_t size = 0;
    for (int32_t i = 0; i < n_product; i++)
        size += packed_bytes(p + i);
    size = (size + LINE - 1) / LINE * LINE;
    uint8_t *const workspace = workspace_of(size + more), *next = workspace;
    for (int32_t i = 0; i < n_product; i++) {
        int32_t same = 0;
        while (same < i && !(p[same].packed && are_packed_alike(p + same, p + i)))
            same++;
        p[i].packed = same < i ? p[same].packed : NULL;
        if (same == i && next && packed_bytes(p + i)) {
            pack_product(p + i, next);
            next += packed_bytes(p + i);
        }
    }
    return workspace && more ? workspace + size : NULL;
}
