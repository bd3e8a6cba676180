/* except.c - nodes that match a text but for given words: the names of an object that are not
 * declared.
 *
 * The words are a tree of bytes. Each of its nodes becomes a BYTES node: the arcs of the node that
 * the exception starts from, with those of the tree in their place. Words are sorted, so one pass
 * over neighbours makes the tree, depth first, without recursion: a node is complete when the next
 * word leaves it. */
#include <stdlib.h>
#include <string.h>
#include "grammar/except.h"
#include "grammar/pushdown.h"

enum { MAX_NODE = 1 << 22, MAX_ARC = 1 << 24, MAX_WORD = 1 << 12 };

/* A node on the path to the current word; its arcs follow in `branch`. */
struct open {
    int32_t from; /* the BYTES node whose arcs it has */
    int32_t n;    /* children so far */
};
struct branch {
    int32_t next; /* -1: no arc, a word ends */
    uint8_t byte;
};
struct builder {
    grammar *g;
    int32_t n_node, max_node, max_arc;
    struct open *path;
    struct branch *branch; /* [256] a level */
    int32_t max_path;
};

static int32_t add_arc(struct builder *b, int32_t lo, int32_t hi, int32_t next)
{
    grammar *g = b->g;
    if (lo > hi || next < 0)
        return 0;
    const int32_t status = grammar_reserve(&g->own_arc, &b->max_arc, (int64_t)g->n_arc + 1, MAX_ARC,
                                           sizeof *g->own_arc);
    if (!status)
        g->own_arc[g->n_arc++] = (grammar_arc){next, (uint8_t)lo, (uint8_t)hi};
    return status;
}

/* Writes the arcs of a complete node; returns where they begin, or an error. */
static int32_t write_arcs(struct builder *b, const struct open *o, const struct branch *children,
                          int32_t *n)
{
    grammar *g = b->g;
    const int32_t first = g->n_arc;
    const grammar_node from = g->own_node[o->from];
    int32_t child = 0, status = 0;
    for (int32_t i = 0; i < from.b && !status; i++) {
        const grammar_arc arc = g->own_arc[from.a + i];
        int32_t lo = arc.lo;
        for (; child < o->n && children[child].byte <= arc.hi && !status; child++) {
            const int32_t byte = children[child].byte;
            status = add_arc(b, lo, byte - 1, arc.next);
            if (!status)
                status = add_arc(b, byte, byte, children[child].next);
            lo = byte + 1;
        }
        if (!status)
            status = add_arc(b, lo, arc.hi, arc.next);
    }
    *n = g->n_arc - first;
    return status ? status : first;
}

/* Makes a node of path[depth], and an arc to it from the node before it. Returns its number. */
static int32_t close_node(struct builder *b, int32_t depth, int32_t number)
{
    grammar *g = b->g;
    int32_t n, first = write_arcs(b, b->path + depth, b->branch + 256 * (int64_t)depth, &n);
    if (first < 0)
        return first;
    if (number < 0) {
        const int32_t status = grammar_reserve(&g->own_node, &b->max_node, (int64_t)b->n_node + 1,
                                               MAX_NODE, sizeof *g->own_node);
        if (status)
            return status;
        number = b->n_node++;
    }
    g->own_node[number] = (grammar_node){GRAMMAR_BYTES, first, n};
    return number;
}

/* The node that byte leads to from BYTES node `from`, or -1. */
static int32_t follow(const grammar *g, int32_t from, uint8_t byte)
{
    const grammar_node node = g->own_node[from];
    for (int32_t i = 0; i < node.b; i++)
        if (g->own_arc[node.a + i].lo <= byte && byte <= g->own_arc[node.a + i].hi)
            return g->own_arc[node.a + i].next;
    return -1;
}

static int32_t expand(struct builder *b, const grammar_program *p, int32_t node)
{
    const grammar_exception e = p->exception[p->node[node].a];
    const uint8_t *last = NULL;
    int32_t n_last = 0;
    b->path[0] = (struct open){e.bound, 0};
    for (int32_t w = e.first; w <= e.first + e.n; w++) {
        const uint8_t *word = p->words + p->word_end[w];
        const int32_t n = w < e.first + e.n ? p->word_end[w + 1] - p->word_end[w] : 0;
        int32_t shared = 0;
        while (shared < n && shared < n_last && word[shared] == last[shared])
            shared++;
        for (int32_t depth = n_last - 1; depth > shared; depth--) { /* nodes that are left */
            const int32_t number = close_node(b, depth, -1);
            if (number < 0)
                return number;
            struct open *above = b->path + depth - 1;
            b->branch[256 * (int64_t)(depth - 1) + above->n - 1].next = number;
        }
        for (int32_t depth = shared; depth < n; depth++) {
            struct open *o = b->path + depth;
            b->branch[256 * (int64_t)depth + o->n++] = (struct branch){-1, word[depth]};
            const int32_t next = follow(b->g, o->from, word[depth]);
            if (depth + 1 < n)
                b->path[depth + 1] = (struct open){next == e.free ? e.bound : next, 0};
            if (next < 0)
                return GRAMMAR_REFUSED; /* not a text of `bound`: a fault of the compiler */
        }
        last = word;
        n_last = n;
    }
    const int32_t number = close_node(b, 0, node);
    return number < 0 ? number : 0;
}

int32_t except_expand(grammar *g, const grammar_program *p)
{
    g->node = p->node;
    g->arc = p->arc;
    g->n_arc = p->n_arc;
    g->n_node = p->n_node;
    int32_t longest = 0, n_exception = 0;
    for (int32_t i = 0; i < p->n_node; i++) {
        if (p->node[i].op != GRAMMAR_EXCEPT)
            continue;
        const grammar_exception e = p->exception[p->node[i].a];
        n_exception++;
        for (int32_t w = e.first; w < e.first + e.n; w++)
            if (p->word_end[w + 1] - p->word_end[w] > longest)
                longest = p->word_end[w + 1] - p->word_end[w];
    }
    if (!n_exception)
        return 0;
    if (longest > MAX_WORD)
        return GRAMMAR_DEEP;
    struct builder b = {.g = g, .n_node = p->n_node};
    b.path = malloc((size_t)(longest + 1) * sizeof *b.path);
    b.branch = malloc((size_t)(longest + 1) * 256 * sizeof *b.branch);
    int32_t status = b.path && b.branch ? 0 : GRAMMAR_NO_MEMORY;
    if (!status)
        status =
            grammar_reserve(&g->own_node, &b.max_node, p->n_node, MAX_NODE, sizeof *g->own_node);
    if (!status)
        status =
            grammar_reserve(&g->own_arc, &b.max_arc, p->n_arc + 1, MAX_ARC, sizeof *g->own_arc);
    if (!status) {
        memcpy(g->own_node, p->node, (size_t)p->n_node * sizeof *g->own_node);
        memcpy(g->own_arc, p->arc, (size_t)p->n_arc * sizeof *g->own_arc);
    }
    for (int32_t i = 0; i < p->n_node && !status; i++)
        if (p->node[i].op == GRAMMAR_EXCEPT)
            status = expand(&b, p, i);
    free(b.path);
    free(b.branch);
    g->node = g->own_node;
    g->n_node = b.n_node;
    g->arc = g->own_arc;
    return status;
}
