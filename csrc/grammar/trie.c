/* trie.c - a trie (prefix tree) of the texts of a vocabulary.
 *
 * Tokens are sorted by text. One pass over neighbours then makes the nodes in preorder. So a
 * subtree is a range of nodes, its tokens are a range, and skipping a subtree is one assignment.
 *
 * The sort is a radix sort, least significant byte first, of 8 bytes of text as one big-endian
 * number. Groups that are still equal are sorted by the next 8 bytes. Time is linear in the bytes
 * that differ: about 20 ms for 262,144 texts. */
#include <stdlib.h>
#include <string.h>
#include "api/limits.h"
#include "grammar/split.h"
#include "grammar/trie.h"

enum { MAX_DEPTH = 65535, SMALL = 48 };

/* key: 8 bytes of text, zero-padded; left: how many there are, 9 for more */
typedef struct {
    uint64_t key;
    int32_t id;
    uint8_t left;
} entry;
/* entries that agree in their first `skip` bytes */
typedef struct {
    int32_t lo, hi;
    uint32_t skip;
} range;

static int before(const entry *a, const entry *b)
{
    return a->key != b->key ? a->key < b->key : a->left < b->left;
}

/* One stable counting pass by digit d: 0 is `left`, 1 to 8 the bytes of the key from the last. */
static int radix_pass(entry *out, const entry *in, int32_t n, int d)
{
    int32_t at[257] = {0};
    for (int32_t i = 0; i < n; i++)
        at[1 + (d ? in[i].key >> 8 * (d - 1) & 255 : in[i].left)]++;
    for (int b = 1; b <= 256; b++)
        if (at[b] == n)
            return 0; /* all equal: nothing to do */
    for (int b = 0; b < 256; b++)
        at[b + 1] += at[b];
    for (int32_t i = 0; i < n; i++)
        out[at[d ? in[i].key >> 8 * (d - 1) & 255 : in[i].left]++] = in[i];
    return 1;
}

/* Sorts e[0..n) by (key, left); stable. */
static void sort_entries(entry *e, entry *spare, int32_t n)
{
    if (n <= SMALL) {
        for (int32_t i = 1; i < n; i++) {
            const entry x = e[i];
            int32_t j = i;
            for (; j > 0 && before(&x, e + j - 1); j--)
                e[j] = e[j - 1];
            e[j] = x;
        }
        return;
    }
    entry *from = e, *to = spare;
    for (int d = 0; d <= 8; d++)
        if (radix_pass(to, from, n, d)) {
            entry *t = from;
            from = to;
            to = t;
        }
    if (from != e)
        memcpy(e, from, (size_t)n * sizeof *e);
}

static void load_keys(entry *e, int32_t n, const struct texts *x, uint32_t skip)
{
    const uint8_t *text = x->text;
    for (int32_t i = 0; i < n; i++) {
        const uint32_t from = x->from[e[i].id] + skip, left = x->to[e[i].id] - from;
        uint64_t key = 0;
        for (uint32_t k = 0; k < 8; k++)
            key = key << 8 | (k < left ? text[from + k] : 0);
        e[i].key = key;
        e[i].left = (uint8_t)(left < 9 ? left : 9);
    }
}

/* Sorts all entries by text; todo [n]. */
static void sort_by_text(entry *e, entry *spare, range *todo, int32_t n, const struct texts *x)
{
    int32_t n_todo = 0;
    if (n)
        todo[n_todo++] = (range){0, n, 0};
    while (n_todo) {
        const range r = todo[--n_todo];
        load_keys(e + r.lo, r.hi - r.lo, x, r.skip);
        sort_entries(e + r.lo, spare, r.hi - r.lo);
        for (int32_t i = r.lo, j; i < r.hi; i = j) {
            for (j = i + 1; j < r.hi && e[j].key == e[i].key && e[j].left == e[i].left; j++)
                ;
            if (e[i].left == 9
                && j - i > 1) /* disjoint ranges of 2 or more: at most n / 2 in todo */
                todo[n_todo++] = (range){i, j, r.skip + 8};
        }
    }
}

/* Length of the common prefix of texts a and b. */
static uint32_t common(const struct texts *t, int32_t a, int32_t b)
{
    const uint8_t *x = t->text + t->from[a], *y = t->text + t->from[b];
    const uint32_t na = t->to[a] - t->from[a], nb = t->to[b] - t->from[b], n = na < nb ? na : nb;
    uint32_t i = 0;
    while (i < n && x[i] == y[i])
        i++;
    return i;
}

/* Makes the nodes of sorted entries. open[d]: the node of depth d on the path to the last node. */
static void make_nodes(trie *t, int32_t *open, const entry *e, int32_t n, const struct texts *x)
{
    int32_t n_node = 1;
    uint32_t deep = 0;
    t->depth[0] = t->byte[0] = 0;
    t->first[0] = open[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        const uint32_t from = x->from[e[i].id], n_bytes = x->to[e[i].id] - from;
        const uint32_t shared = i ? common(x, e[i - 1].id, e[i].id) : 0;
        for (; deep > shared; deep--)
            t->end[open[deep]] = n_node;
        for (; deep < n_bytes; n_node++) {
            t->byte[n_node] = x->text[from + deep++];
            t->depth[n_node] = (uint16_t)deep;
            t->first[n_node] = i;
            open[deep] = n_node;
        }
        t->tokens[i] = e[i].id;
    }
    for (; deep > 0; deep--)
        t->end[open[deep]] = n_node;
    t->end[0] = t->n_node = n_node;
    t->first[n_node] = n;
}

static trie *build(trie *t, entry *e, range *todo, int32_t n, const struct texts *x)
{
    sort_by_text(e, e + n, todo, n, x);
    int64_t n_node = 1;
    for (int32_t i = 0; i < n; i++) {
        const uint32_t n_bytes = x->to[e[i].id] - x->from[e[i].id];
        n_node += n_bytes - (i ? common(x, e[i - 1].id, e[i].id) : 0);
        if ((int32_t)n_bytes > t->max_depth)
            t->max_depth = (int32_t)n_bytes;
    }
    t->byte = malloc((size_t)n_node);
    t->depth = malloc((size_t)n_node * sizeof *t->depth);
    t->end = malloc((size_t)n_node * sizeof *t->end);
    t->first = malloc((size_t)(n_node + 1) * sizeof *t->first);
    t->tokens = malloc((size_t)(n + 1) * sizeof *t->tokens);
    t->path = malloc((size_t)(t->max_depth + 1) * sizeof *t->path);
    if (!t->byte || !t->depth || !t->end || !t->first || !t->tokens || !t->path)
        return NULL;
    make_nodes(t, t->path, e, n, x);
    return t;
}

trie *trie_of(const struct texts *x, const int32_t *ids, int32_t n, int32_t n_vocab)
{
    trie *t = calloc(1, sizeof *t), *done = NULL;
    entry *e = malloc(((size_t)n * 2 + 1) * sizeof *e);
    range *todo = malloc(((size_t)n + 1) * sizeof *todo);
    if (t && e && todo) {
        t->n_vocab = n_vocab;
        for (int32_t i = 0; i < n; i++)
            e[i].id = ids[i];
        done = build(t, e, todo, n, x);
    }
    free(e);
    free(todo);
    if (!done)
        trie_free(t);
    return done;
}

trie *trie_new(const uint8_t *text, const uint32_t *offset, const uint64_t *skip, int32_t n_vocab)
{
    if (offset[n_vocab] > MAX_VOCAB_BYTES)
        return NULL;
    const struct texts x = {text, offset, offset + 1};
    int32_t *ids = malloc(((size_t)n_vocab + 1) * sizeof *ids), n = 0;
    for (int32_t i = 0; i < n_vocab && ids; i++)
        if (offset[i + 1] > offset[i] && offset[i + 1] - offset[i] <= MAX_DEPTH
            && !(skip[i / 64] >> i % 64 & 1))
            ids[n++] = i;
    trie *t = ids ? trie_of(&x, ids, n, n_vocab) : NULL;
    if (t && split_new(t, &x, ids, n)) {
        trie_free(t);
        t = NULL;
    }
    free(ids);
    return t;
}

void trie_free(trie *t)
{
    if (!t)
        return;
    free(t->byte);
    free(t->depth);
    free(t->end);
    free(t->first);
    free(t->tokens);
    free(t->path);
    free(t->below);
    free(t->plain);
    split_free(t->split);
    free(t);
}

int32_t trie_n_node(const trie *t) { return t->n_node; }
