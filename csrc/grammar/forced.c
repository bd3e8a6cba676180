/* forced.c - the text that a grammar leaves no choice about.
 *
 * From the current state on, bytes are followed while exactly one may come next and the text is not
 * complete. A token is a choice nevertheless if a longer one begins with what is left of these
 * bytes and goes on as the grammar allows: {"name": " may end within the token that begins with the
 * quotation mark and has the first letters of the name. */
#include <string.h>
#include "grammar/matcher.h"
#include "grammar/trie.h"

/* The only byte that may follow in `state`, or -1. */
static int only_byte(const grammar *g, int32_t state)
{
    const struct grammar_states s = g->state[state];
    int byte = -1;
    if (s.complete)
        return -1;
    for (int32_t i = 0; i < s.n; i++) {
        const grammar_node node = g->node[g->config[s.first + i].node];
        if (node.op != GRAMMAR_BYTES || node.b > 1)
            return -1;
        if (node.b == 0)
            continue;
        const grammar_arc arc = g->arc[node.a];
        if (arc.lo != arc.hi || (byte >= 0 && byte != arc.lo))
            return -1;
        byte = arc.lo;
    }
    return byte;
}

/* The node of the trie for n bytes, or -1. */
static int32_t find_node(const trie *t, const uint8_t *text, int32_t n)
{
    int32_t node = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t child = node + 1;
        while (child < t->end[node] && t->byte[child] != text[i])
            child = t->end[child];
        if (child >= t->end[node])
            return -1;
        node = child;
    }
    return node;
}

/* Does the grammar allow, in `state`, the rest of a token below `node`? 1, 0, or an error. */
static int32_t allows_below(grammar *g, trie *t, int32_t state, int32_t node)
{
    int32_t *path = t->path;
    path[t->depth[node]] = state;
    for (int32_t i = node + 1; i < t->end[node];) {
        const int32_t d = t->depth[i], s = grammar_next(g, path[d - 1], g->class_of[t->byte[i]]);
        if (s < GRAMMAR_REFUSED)
            return s;
        if (s >= 0 && t->first[i + 1] > t->first[i])
            return 1;
        path[d] = s;
        i = s < 0 ? t->end[i] : i + 1;
    }
    return 0;
}

int32_t grammar_forced(uint8_t *text, uint8_t *open, int32_t *last, int32_t max, grammar *g,
                       trie *t)
{
    int32_t n = 0, state, status = g->current < 0 ? g->current : grammar_tidy(g);
    if (status)
        return status;
    state = g->current;
    for (int byte; n < max && (byte = only_byte(g, state)) >= 0; n++) {
        state = grammar_next(g, state, g->class_of[byte]);
        if (state < 0)
            return state == GRAMMAR_NO_MEMORY ? state : 0;
        text[n] = (uint8_t)byte;
    }
    *last = g->state[state].complete && g->state[state].n == 0;
    for (int32_t i = 0; i < n && !*last; i++) {
        const int32_t node = n - i <= t->max_depth ? find_node(t, text + i, n - i) : -1;
        status = node < 0 ? 0 : allows_below(g, t, state, node);
        if (status < 0)
            return status == GRAMMAR_NO_MEMORY ? status : 0;
        open[i] = (uint8_t)status;
    }
    if (*last)
        memset(open, 0, (size_t)n);
    return n;
}
