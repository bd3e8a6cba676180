/* attention_cut.c - attention, cut into items or parts for the threads. */
#include <string.h>
#include "api/kernels.h"
#include "kernels/attention_arguments.h"
#include "kernels/workspace.h"
#include "runtime/isa.h"
#include "runtime/threads.h"

/* Tokens that an item of attention covers: some 128 queries, at most 64 tokens, share each row of K
 * and V; one token where a group is larger. */
static int32_t item_tokens(int32_t n_tok, int32_t group)
{
    const int32_t max = group <= 2 ? 64 : group <= 128 ? 128 / group : 1;
    return n_tok < max ? n_tok : max;
}

/* How a call is cut.  Items if there are many queries and the items divide evenly among the
 * threads, or if the call is small; else in n_part parts: one of some heads for each thread, or, if
 * heads do not divide evenly, more parts of each step, which costs two barriers more. */
enum {
    WORTH_CUTTING = 256 /* positions */,
    MAX_CUT_TOKENS = 64 /* all their scores are kept at once */,
    FEW_QUERIES = 8
};
typedef struct {
    int32_t item_tok, n_part;
    int64_t n_item;
} cut;

static cut cut_of(int32_t n_tok, int32_t pos, int32_t n_head, int32_t n_head_kv)
{
    const int32_t group = n_head / n_head_kv, item_tok = item_tokens(n_tok, group),
                  n_thread = threads_count();
    const int64_t n_item = (int64_t)(n_tok + item_tok - 1) / item_tok * n_head_kv;
    const int few =
        (int64_t)n_tok * group <= FEW_QUERIES || (n_item % n_thread != 0 && n_item < 4 * n_thread);
    const int in_parts = best_isa()->cuts_attention && few && pos + n_tok >= WORTH_CUTTING
        && n_tok <= MAX_CUT_TOKENS && (int64_t)n_tok * n_head <= ATTEND_QUERIES;
    if (in_parts)
        return (cut){n_tok, n_head_kv % n_thread == 0 ? n_thread : 4 * n_thread, n_head_kv};
    return (cut){item_tok, 0, n_item};
}

int64_t attention_scores(int32_t n_tok, int32_t pos, int32_t n_head, int32_t n_head_kv)
{
    const cut c = cut_of(n_tok, pos, n_head, n_head_kv);
    const int64_t n_scores =
        (int64_t)c.item_tok * (n_head / n_head_kv) * score_stride((int64_t)pos + n_tok);
    return n_scores * (c.n_part ? n_head_kv : threads_count());
}

/* Where each thread has two items of a head or more, it converts that head's rows once and keeps
 * them, if they are not too many.  Without memory every item converts what it reads: the bits are
 * the same. */
enum { MAX_CACHED = 4 << 20 /* bytes of a thread */ };

static void cache_converted(attention_args *a, const cut *c)
{
    const int32_t n_thread = threads_count();
    const int64_t first = a->window && a->pos >= a->window ? a->pos - a->window + 1 : 0,
                  rows = (int64_t)a->pos + a->n_tok - first;
    const int64_t n_bytes =
        CACHED_HEADER + 4 * (cached_keys(rows, a->head_dim) + rows * a->head_dim);
    const int64_t n_cached = (n_bytes + PAGE - 1) / PAGE * PAGE;
    if (!best_isa()->cuts_attention || c->n_part || c->n_item < 2 * (int64_t)n_thread * a->n_head_kv
        || n_cached > MAX_CACHED)
        return;
    a->cached = workspace_of(n_cached * n_thread);
    if (!a->cached)
        return;
    const int32_t none = -1;
    for (int32_t i = 0; i < n_thread; i++)
        memcpy(a->cached + i * n_cached, &none, sizeof none);
    a->n_cached = n_cached;
    a->cached_rows = (int32_t)rows;
}

void attention(float *o, const float *q, int32_t type, const void *k, const void *v, float *scores,
               int32_t n_tok, int32_t pos, int32_t n_head, int32_t n_head_kv, int32_t head_dim,
               int32_t window, float scale, float cap)
{
    const cut c = cut_of(n_tok, pos, n_head, n_head_kv);
    attention_args a = {
        o,         q,
        k,         v,
        scores,    (int64_t)c.item_tok * (n_head / n_head_kv) * score_stride((int64_t)pos + n_tok),
        type,      n_tok,
        pos,       n_head,
        n_head_kv, head_dim,
        window,    scale,
        cap,       c.item_tok,
        NULL,      0,
        0,         ATTEND_ALL,
        c.n_part};
    cache_converted(&a, &c);
    if (c.n_part <= threads_count()) {
        parallel(best_isa()->attention, &a, c.n_part ? c.n_part : c.n_item, 1);
        return;
    }
    for (a.steps = ATTEND_SCORES; a.steps <= ATTEND_VALUES; a.steps *= 2)
        parallel(best_isa()->attention, &a, a.n_part, 1);
}
