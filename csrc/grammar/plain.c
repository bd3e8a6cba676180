/* plain.c - where plain characters lead.
 *
 * Inside of a string all plain characters are alike: each leads to the same state. That is found
 * from the arcs, not by trying the characters: a node's arcs for them must have one target, those
 * of lead bytes over nodes for the bytes that follow. A state is alike if all its nodes are. */
#include <stdlib.h>
#include "grammar/plain.h"
#include "grammar/split.h"

/* The node that n more bytes lead to from `node`, the first within lo and hi, if each does; else
 * PLAIN_MIXED, or PLAIN_NONE if no byte is allowed. Recursion: 3 levels. */
static int32_t behind(const grammar *g, int32_t node, int n, uint8_t lo, uint8_t hi)
{
    if (n == 0)
        return node;
    if (g->node[node].op != GRAMMAR_BYTES)
        return PLAIN_MIXED;
    const grammar_arc *arc = g->arc + g->node[node].a;
    int32_t found = PLAIN_NONE;
    int next = lo;
    for (int32_t i = 0; i < g->node[node].b; i++) {
        if (arc[i].hi < lo || arc[i].lo > hi)
            continue;
        const int32_t to = behind(g, arc[i].next, n - 1, 0x80, 0xbf);
        if (to < 0 || arc[i].lo > next || (found >= 0 && to != found))
            return PLAIN_MIXED; /* PLAIN_NONE: a node without bytes */
        found = to;
        next = arc[i].hi + 1;
    }
    return found >= 0 && next <= hi ? PLAIN_MIXED : found;
}

/* The node after any plain character from `node` whose first byte is at least `from`, or
 * PLAIN_NONE, or PLAIN_MIXED. */
static int32_t of_node(const grammar *g, int32_t node, int from)
{
    const grammar_arc *arc = g->arc + g->node[node].a;
    int32_t found = STATE_UNKNOWN, i = 0;
    for (int b = from; b < 0xf5; b++) {
        if (!is_plain((uint8_t)b))
            continue;
        while (i < g->node[node].b && arc[i].hi < b)
            i++;
        int32_t to = PLAIN_NONE;
        if (i < g->node[node].b && arc[i].lo <= b) {
            uint8_t lo, hi;
            const int n = n_more(&lo, &hi, (uint8_t)b);
            to = behind(g, arc[i].next, n, lo, hi);
        }
        if (to == PLAIN_MIXED || (found != STATE_UNKNOWN && to != found))
            return PLAIN_MIXED;
        found = to;
    }
    return found;
}

int32_t plain_next(grammar *g, int32_t state)
{
    if (g->state[state].plain_known)
        return g->state[state].after_plain;
    if (!g->after_plain) {
        g->after_plain = malloc((size_t)g->n_node * sizeof *g->after_plain);
        if (!g->after_plain)
            return GRAMMAR_NO_MEMORY;
        for (int32_t i = 0; i < g->n_node; i++)
            g->after_plain[i] = STATE_UNKNOWN;
    }
    int32_t found = PLAIN_NONE;
    const struct grammar_states s = g->state[state];
    for (int32_t i = 0; i < s.n && found != PLAIN_MIXED; i++) {
        const int32_t node = g->config[s.first + i].node;
        if (g->after_plain[node] == STATE_UNKNOWN)
            g->after_plain[node] = of_node(g, node, 0x20);
        if (g->after_plain[node] != PLAIN_NONE)
            found = g->after_plain[node] == PLAIN_MIXED ? PLAIN_MIXED : 0;
    }
    if (found >= 0) {
        found = grammar_next(g, state, g->class_of['a']);
        if (found == GRAMMAR_REFUSED)
            found = PLAIN_NONE; /* a loop that may not go on */
        else if (found < 0)
            return found;
    }
    g->state[state].plain_known = 1;
    g->state[state].after_plain = found;
    return found;
}

/* The node that `byte` leads to, or PLAIN_NONE. */
static int32_t by_byte(const grammar *g, int32_t node, uint8_t byte)
{
    const grammar_arc *arc = g->arc + g->node[node].a;
    for (int32_t i = 0; i < g->node[node].b; i++)
        if (arc[i].lo <= byte && byte <= arc[i].hi)
            return arc[i].next;
    return PLAIN_NONE;
}

enum { MAX_BUT = 40 };

int32_t plain_next_but(grammar *g, int32_t state, uint64_t *but)
{
    int32_t next[128], usual = GRAMMAR_REFUSED, n_usual = 0;
    uint8_t byte = 0;
    for (int b = 0x20; b < 0x80; b++) {
        if (!is_plain((uint8_t)b))
            continue;
        next[b] = grammar_next(g, state, g->class_of[b]);
        if (next[b] < GRAMMAR_REFUSED)
            return next[b];
        if (n_usual == 0 || next[b] != usual) /* the majority, if there is one */
            n_usual--;
        else
            n_usual++;
        if (n_usual < 0) {
            usual = next[b];
            n_usual = 1;
            byte = (uint8_t)b;
        }
    }
    if (usual < 0)
        return PLAIN_MIXED;
    int n_but = 0;
    but[0] = but[1] = 0;
    for (int b = 0x20; b < 0x80; b++)
        if (is_plain((uint8_t)b) && next[b] != usual) {
            but[b / 64] |= (uint64_t)1 << b % 64;
            n_but++;
        }
    if (n_but > MAX_BUT)
        return PLAIN_MIXED;
    const struct grammar_states s = g->state[state];
    for (int32_t i = 0; i < s.n; i++) { /* characters beyond ASCII as that byte */
        const int32_t node = g->config[s.first + i].node;
        if (of_node(g, node, 0x80) != by_byte(g, node, byte))
            return PLAIN_MIXED;
    }
    return usual;
}
