/* pushdown.c - the pushdown automaton of a grammar: its stacks, and the steps that consume no byte
 * (epsilon closure).
 *
 * A configuration is a node that consumes a byte, and a stack: the return nodes of the open rules
 * and the rounds of the open counted loops. Stacks are linked frames, equal ones stored once
 * (hash-consing). So a stack is a number, and sharing limits the memory.
 *
 * Two rules keep the set of configurations small and finite. A round of a loop that consumed no
 * byte is dropped: `fresh` counts the frames pushed since the last byte, and a loop with a fresh
 * frame has made no progress. And a configuration is dropped if another one differs only in loop
 * counts and allows all that it allows (`covers`).
 *
 * Bounds against hostile grammars: nothing recurses, each table has a limit, each step is counted.
 */
#include <stdlib.h>
#include <string.h>
#include "grammar/pushdown.h"

enum { MAX_STEPS = 4000000, MAX_SEEN = 1 << 18, MAX_FRAME = 1 << 20 };

/* Grows *array to `need` elements of `size` bytes or more; 0, or an error. */
int32_t grammar_reserve(void *array, int32_t *max, int64_t need, int64_t limit, size_t size)
{
    if (need <= *max)
        return 0;
    if (need > limit)
        return GRAMMAR_DEEP;
    int64_t n = *max ? 2 * (int64_t)*max : 64;
    n = n < need ? need : n > limit ? limit : n;
    void *p;
    memcpy(&p, array, sizeof p);
    p = realloc(p, (size_t)n * size);
    if (!p)
        return GRAMMAR_NO_MEMORY;
    memcpy(array, &p, sizeof p);
    *max = (int32_t)n;
    return 0;
}

/* Hash tables hold number + 1; open addressing, a power of two of slots, at most half full.
 * The hash of number i lies `stride` i bytes after `hash`. */
int32_t grammar_rehash(int32_t **table, int32_t *n_slot, int32_t n, const void *hash, size_t stride)
{
    int32_t size = *n_slot ? *n_slot : 256;
    while (size < 2 * n + 2)
        size *= 2;
    int32_t *t = calloc((size_t)size, sizeof *t);
    if (!t)
        return GRAMMAR_NO_MEMORY;
    for (int32_t i = 0; i < n; i++) {
        uint32_t h;
        memcpy(&h, (const char *)hash + (size_t)i * stride, sizeof h);
        uint32_t at = h & (uint32_t)(size - 1);
        while (t[at])
            at = (at + 1) & (uint32_t)(size - 1);
        t[at] = i + 1;
    }
    free(*table);
    *table = t;
    *n_slot = size;
    return 0;
}

/* The number of the stack `parent` with one frame more, or an error. */
int32_t pushdown_push(grammar *g, int32_t parent, int32_t where, int32_t count)
{
    const uint32_t hash = grammar_mix(
        grammar_mix(grammar_mix(0, (uint32_t)parent), (uint32_t)where), (uint32_t)count);
    uint32_t at = hash & (uint32_t)(g->n_frame_hash - 1);
    for (int32_t i; (i = g->frame_hash[at]) != 0; at = (at + 1) & (uint32_t)(g->n_frame_hash - 1)) {
        const struct grammar_frame *f = g->frame + i - 1;
        if (f->parent == parent && f->where == where && f->count == count)
            return i - 1;
    }
    int32_t status = grammar_reserve(&g->frame, &g->max_frame, (int64_t)g->n_frame + 1, MAX_FRAME,
                                     sizeof *g->frame);
    if (status)
        return status;
    const uint32_t above = parent < 0 ? 0 : g->frame[parent].shape;
    g->frame[g->n_frame] = (struct grammar_frame){
        parent, where, count, hash, grammar_mix(grammar_mix(above, (uint32_t)where), count >= 0)};
    g->frame_hash[at] = ++g->n_frame;
    if (2 * g->n_frame > g->n_frame_hash
        && (status = grammar_rehash(&g->frame_hash, &g->n_frame_hash, g->n_frame, &g->frame->hash,
                                    sizeof *g->frame)))
        return status;
    return g->n_frame - 1;
}

/* The slot of `w` in the set of work seen in this step. */
static struct seen *find_seen(struct grammar_closure *c, struct grammar_work w)
{
    uint32_t at = grammar_mix(grammar_mix(grammar_mix(0, (uint32_t)w.node), (uint32_t)w.stack),
                              (uint32_t)w.fresh);
    for (;; at++) {
        struct seen *s = c->seen + (at & (uint32_t)(c->max_seen - 1));
        if (s->stamp != c->stamp
            || (s->work.node == w.node && s->work.stack == w.stack && s->work.fresh == w.fresh))
            return s;
    }
}

static int32_t grow_seen(struct grammar_closure *c)
{
    if (c->max_seen >= 2 * MAX_SEEN)
        return GRAMMAR_WIDE;
    struct seen *old = c->seen;
    const int32_t n = c->max_seen;
    struct seen *fresh = calloc((size_t)(n ? 4 * n : 256), sizeof *fresh);
    if (!fresh)
        return GRAMMAR_NO_MEMORY;
    c->seen = fresh;
    c->max_seen = n ? 4 * n : 256;
    for (int32_t i = 0; i < n; i++)
        if (old[i].stamp == c->stamp)
            *find_seen(c, old[i].work) = old[i];
    free(old);
    return 0;
}

/* Note that `node` is reached with `stack`: as live if it takes a byte, else as work to do. */
int32_t pushdown_reach(grammar *g, int32_t node, int32_t stack, int32_t fresh)
{
    struct grammar_closure *c = g->closure;
    if (stack < 0)
        return stack; /* push_frame failed */
    if (++g->n_steps > MAX_STEPS)
        return GRAMMAR_SLOW;
    const int consumes = g->node[node].op == GRAMMAR_BYTES || g->node[node].op == GRAMMAR_TOKEN;
    const struct grammar_work w = {node, stack, consumes ? 0 : fresh};
    struct seen *s = find_seen(c, w);
    if (s->stamp == c->stamp)
        return 0;
    *s = (struct seen){c->stamp, w};
    int32_t status = 2 * ++c->n_seen > c->max_seen ? grow_seen(c) : 0;
    if (status)
        return status;
    if (consumes) {
        if (c->n_live == MAX_LIVE)
            return GRAMMAR_WIDE;
        c->live[c->n_live++] = (struct grammar_config){node, stack};
        return 0;
    }
    if ((status = grammar_reserve(&g->work, &g->max_work, (int64_t)g->n_work + 1, 2 * MAX_SEEN,
                                  sizeof *g->work)))
        return status;
    g->work[g->n_work++] = w;
    return 0;
}

/* Ends a round of a counted loop, whose frame is on top of w.stack. */
static int32_t again(grammar *g, struct grammar_work w, int32_t number)
{
    if (w.fresh > 0)
        return 0; /* an empty round */
    const grammar_loop *l = g->loop + number;
    const int32_t parent = g->frame[w.stack].parent, done = g->frame[w.stack].count + 1;
    int32_t status = done >= l->min ? pushdown_reach(g, l->exit, parent, 0) : 0;
    if (!status && (l->max < 0 || done < l->max)) {
        /* without a limit, all counts from min - 1 up are equivalent */
        const int32_t count = l->max < 0 && done >= l->min ? (l->min ? l->min - 1 : 0) : done;
        status = pushdown_reach(g, l->body, pushdown_push(g, parent, number, count), 1);
    }
    return status;
}

/* Follows all nodes that consume no byte (epsilon closure). */
int32_t pushdown_close(grammar *g)
{
    int32_t status = 0;
    while (g->n_work && !status) {
        const struct grammar_work w = g->work[--g->n_work];
        const grammar_node n = g->node[w.node];
        const int32_t deeper = w.fresh + 1, higher = w.fresh > 0 ? w.fresh - 1 : 0;
        switch (n.op) {
        case GRAMMAR_SPLIT:
            for (int32_t i = 0; i < n.b && !status; i++)
                status = pushdown_reach(g, g->target[n.a + i], w.stack, w.fresh);
            break;
        case GRAMMAR_CALL:
            status = pushdown_reach(g, n.a, pushdown_push(g, w.stack, n.b, -1), deeper);
            break;
        case GRAMMAR_RETURN:
            if (w.stack == 0)
                g->closure->complete = 1;
            else
                status =
                    pushdown_reach(g, g->frame[w.stack].where, g->frame[w.stack].parent, higher);
            break;
        case GRAMMAR_REPEAT:
            if (g->loop[n.a].min == 0)
                status = pushdown_reach(g, g->loop[n.a].exit, w.stack, w.fresh);
            if (!status)
                status =
                    pushdown_reach(g, g->loop[n.a].body, pushdown_push(g, w.stack, n.a, 0), deeper);
            break;
        case GRAMMAR_AGAIN: status = again(g, w, n.a); break;
        }
    }
    return status;
}

/* Does stack a allow all that stack b allows? It does if only counts differ, and each loop of a has
 * done fewer rounds and may end at least as early. */
static int covers(grammar *g, int32_t a, int32_t b)
{
    while (a != b) {
        const struct grammar_frame *x = g->frame + a, *y = g->frame + b;
        g->n_steps++;
        if (a == 0 || b == 0 || x->shape != y->shape || x->where != y->where
            || (x->count < 0) != (y->count < 0))
            return 0;
        if (x->count > y->count || (x->count < y->count && x->count + 1 < g->loop[x->where].min))
            return 0;
        a = x->parent;
        b = y->parent;
    }
    return 1;
}

static int before(const grammar *g, struct grammar_config a, struct grammar_config b)
{
    const uint32_t x = g->frame[a.stack].shape, y = g->frame[b.stack].shape;
    return a.node != b.node ? a.node < b.node : x != y ? x < y : a.stack < b.stack;
}

/* Sorts the live configurations and drops covered ones. */
int32_t pushdown_settle(grammar *g)
{
    struct grammar_closure *c = g->closure;
    struct grammar_config *v = c->live;
    for (int32_t gap = c->n_live / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (int32_t i = gap; i < c->n_live; i++) {
            const struct grammar_config x = v[i];
            int32_t j = i;
            for (; j >= gap && before(g, x, v[j - gap]); j -= gap)
                v[j] = v[j - gap];
            v[j] = x;
        }
    if (!g->n_loop)
        return 0;
    int32_t n = 0, group = 0;
    for (int32_t i = 0; i < c->n_live; i++) {
        const struct grammar_config x = v[i];
        if (n == group || v[group].node != x.node
            || g->frame[v[group].stack].shape != g->frame[x.stack].shape)
            group = n;
        int covered = 0;
        for (int32_t j = group; j < n && !covered; j++)
            covered = covers(g, v[j].stack, x.stack);
        if (g->n_steps > MAX_STEPS)
            return GRAMMAR_SLOW;
        if (covered)
            continue;
        int32_t kept = group;
        for (int32_t j = group; j < n; j++)
            if (!covers(g, x.stack, v[j].stack))
                v[kept++] = v[j];
        n = kept;
        v[n++] = x;
    }
    c->n_live = n;
    return 0;
}

void pushdown_begin(grammar *g)
{
    struct grammar_closure *c = g->closure;
    g->n_work = c->n_live = c->n_seen = c->complete = 0;
    if (++c->stamp == 0) {
        memset(c->seen, 0, (size_t)c->max_seen * sizeof *c->seen);
        c->stamp = 1;
    }
}

int32_t pushdown_new(grammar *g)
{
    int32_t status = GRAMMAR_NO_MEMORY;
    if ((g->closure = calloc(1, sizeof *g->closure)) && !(status = grow_seen(g->closure)))
        status = grammar_rehash(&g->frame_hash, &g->n_frame_hash, 0, NULL, 0);
    return status ? status : pushdown_push(g, -1, -1, -1); /* frame 0, the bottom */
}

void pushdown_free(grammar *g)
{
    if (g->closure)
        free(g->closure->seen);
    free(g->closure);
    free(g->frame);
    free(g->frame_hash);
    free(g->work);
}
