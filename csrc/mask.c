/* mask.c - the ids that a grammar allows next.
 *
 * The trie of the vocabulary is walked in preorder beside the grammar's states
 * (Willard & Louf 2023, arXiv:2307.09702, for the regular case); where no state
 * is left the subtree is skipped, so a small answer costs little.  Where a state
 * leads back to itself by every byte below a node (the inside of a string), the
 * subtree is allowed as a whole.  The answer is kept with the state. */
#include <stdlib.h>
#include <string.h>
#include "internal.h"

enum { MAX_MASK_BYTES = 8 << 20, BUSY = 16 /* visits after which it pays to know a state's loops */ };

/* below[i] = the classes of all bytes under node i. */
static int32_t mark_below(trie *t, const uint8_t *class_of)
{
    if (t->below && !memcmp(t->class_of, class_of, sizeof t->class_of))
        return 0;
    uint64_t *under = calloc((size_t)t->max_depth + 2, sizeof *under); /* of the open subtree at each depth */
    if (!t->below)
        t->below = malloc((size_t)t->n_node * sizeof *t->below);
    if (!under || !t->below) {
        free(under);
        return GRAMMAR_NO_MEMORY;
    }
    for (int32_t i = t->n_node - 1; i >= 0; i--) {
        const int32_t d = t->depth[i];
        t->below[i] = under[d + 1];
        under[d] |= under[d + 1] | (uint64_t)1 << class_of[t->byte[i]] % 64;
        under[d + 1] = 0;
    }
    free(under);
    memcpy(t->class_of, class_of, sizeof t->class_of);
    return 0;
}

/* state.loops; 0 or an error. */
static int32_t find_loops(grammar *g, trie *t, int32_t state)
{
    uint64_t others = 0, loops = 0;
    const int32_t status = mark_below(t, g->class_of);
    if (status)
        return status;
    g->has_loops = 1;
    for (int32_t c = 0; c < g->n_class; c++) {
        const int32_t next = grammar_next(g, state, c);
        if (next < GRAMMAR_REFUSED)
            return next;
        *(next == state ? &loops : &others) |= (uint64_t)1 << c % 64;
    }
    g->state[state].loops = loops & ~others; /* where two classes share a bit both must lead back */
    return 0;
}

static int32_t walk(uint64_t *allowed, int32_t *last, grammar *g, trie *t)
{
    int32_t *path = t->path;
    path[0] = g->current;
    *last = 1;
    for (int32_t i = 1; i < t->n_node;) {
        const int32_t d = t->depth[i], class = g->class_of[t->byte[i]];
        int32_t s = g->step[(int64_t)path[d - 1] * g->n_class + class];
        if (s == STATE_UNKNOWN)
            s = grammar_next(g, path[d - 1], class);
        if (s < 0) {
            if (s != GRAMMAR_REFUSED)
                return s;
            i = t->end[i];
            continue;
        }
        path[d] = s;
        struct grammar_states *state = g->state + s;
        if (state->n_visit < BUSY && ++state->n_visit == BUSY) {
            const int32_t status = find_loops(g, t, s);
            if (status)
                return status;
            state = g->state + s;
        }
        const int whole = state->loops && !(t->below[i] & ~state->loops);
        const int32_t next = whole ? t->end[i] : i + 1;
        for (int32_t k = t->first[i]; k < t->first[next]; k++)
            allowed[t->ids[k] / 64] |= (uint64_t)1 << t->ids[k] % 64;
        if (t->first[next] > t->first[i] && state->n)
            *last = 0;
        i = next;
    }
    return 0;
}

int32_t grammar_allowed(uint64_t *allowed, int32_t *last, grammar *g, trie *t)
{
    const size_t n_bytes = ((size_t)t->n_vocab + 63) / 64 * 8;
    memset(allowed, 0, n_bytes);
    *last = 0;
    int32_t status = grammar_tidy(g);
    if (!status && g->has_loops) /* another grammar may have marked the trie since */
        status = mark_below(t, g->class_of);
    if (status || g->current < 0)
        return status ? status : g->current;
    if (g->state[g->current].mask) {
        memcpy(allowed, g->state[g->current].mask, n_bytes);
        *last = g->state[g->current].last;
        return 0;
    }
    if ((status = walk(allowed, last, g, t)))
        return status;
    if (g->n_mask_bytes + n_bytes > MAX_MASK_BYTES)
        grammar_drop_masks(g);
    struct grammar_states *state = g->state + g->current;
    state->last = (uint8_t)*last;
    if ((state->mask = malloc(n_bytes ? n_bytes : 1))) { /* without memory the next call walks again */
        memcpy(state->mask, allowed, n_bytes);
        g->n_mask_bytes += n_bytes;
    }
    return 0;
}

int32_t candidates_of_dense(candidate *out, const float *logits, const uint64_t *allowed, int32_t n_vocab)
{
    int32_t n = 0;
    for (int32_t w = 0; w < (n_vocab + 63) / 64; w++)
        for (uint64_t bits = allowed[w]; bits; bits &= bits - 1) {
            const int32_t id = w * 64 + __builtin_ctzll(bits);
            memcpy(&out[n].logit, logits + id, sizeof *logits); /* the bits, also of a NaN */
            out[n++].id = id;
        }
    return n;
}

int32_t candidates_of_candidates(candidate *out, const candidate *in, const uint64_t *allowed, int32_t n)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (allowed[in[i].id / 64] >> in[i].id % 64 & 1)
            out[kept++] = in[i];
    return kept;
}
