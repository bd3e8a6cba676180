/* mask.c - the token mask of a grammar: the tokens that it allows next.
 *
 * The trie of the vocabulary is walked in preorder together with the grammar's states (Willard &
 * Louf 2023, arXiv:2307.09702, for regular grammars). A subtree without a state is skipped, so a
 * small mask costs little. If a state leads back to itself by each character below a node (the
 * inside of a string), the whole subtree is allowed. The mask is cached with the state.
 *
 * The characters below a node are a set of 64 bits: bit k < 63 for the ASCII and lead bytes of
 * class k (mod 63), bit 63 if some text is not UTF-8 from the node on. Bit k of a state's `loops`
 * is set if each character that begins with such a byte leads back to the state. */
#include <stdlib.h>
#include <string.h>
#include "grammar/matcher.h"
#include "grammar/trie.h"

enum {
    MAX_MASK_BYTES = 8 << 20,
    BUSY = 16, /* visits after which it pays to find a state's loops */
    MAX_LOOKS = 1024
};
#define ILL_FORMED ((uint64_t)1 << 63)

static uint64_t bit_of(int32_t class) { return (uint64_t)1 << class % 63; }

/* The number of bytes that follow lead byte b, and bounds of the first; -1: not a lead byte. */
static int n_more(uint8_t *lo, uint8_t *hi, uint8_t b)
{
    *lo = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80;
    *hi = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
    return b < 0x80 ? 0 : b < 0xc2 ? -1 : b < 0xe0 ? 1 : b < 0xf0 ? 2 : b < 0xf5 ? 3 : -1;
}

/* bytes missing, and bounds of the next */
typedef struct {
    int8_t wait;
    uint8_t lo, hi;
} character;

/* May byte b follow? Updates *at. */
static int well_formed(character *at, uint8_t b)
{
    if (at->wait > 0 && b >= at->lo && b <= at->hi) {
        *at = (character){(int8_t)(at->wait - 1), 0x80, 0xbf};
        return 1;
    }
    const int was = at->wait, n = n_more(&at->lo, &at->hi, b);
    at->wait = (int8_t)(n < 0 ? 0 : n);
    return was == 0 && n >= 0;
}

/* below[i] = the set of characters below node i. */
static int32_t mark_below(trie *t, const uint8_t *class_of)
{
    if (t->below && !memcmp(t->class_of, class_of, sizeof t->class_of))
        return 0;
    /* at each depth: the character so far */
    character *at = calloc((size_t)t->max_depth + 2, sizeof *at);
    /* at each depth: the set of the open subtree */
    uint64_t *under = calloc((size_t)t->max_depth + 2, sizeof *under), bits[256];
    if (!t->below)
        t->below = malloc((size_t)t->n_node * sizeof *t->below);
    if (!at || !under || !t->below) {
        free(at);
        free(under);
        return GRAMMAR_NO_MEMORY;
    }
    for (int b = 0; b < 256; b++)
        bits[b] = b >= 0x80 && b <= 0xbf ? 0 : bit_of(class_of[b]);
    for (int32_t i = 1; i < t->n_node; i++) { /* downwards: the node's own byte */
        const int32_t d = t->depth[i];
        const uint8_t b = t->byte[i];
        at[d] = at[d - 1];
        t->below[i] = bits[b];
        if ((b >= 0x80 || at[d].wait) && !well_formed(at + d, b))
            t->below[i] |= ILL_FORMED;
    }
    t->below[0] = 0;
    for (int32_t i = t->n_node - 1; i >= 0; i--) { /* upwards */
        const int32_t d = t->depth[i];
        const uint64_t all = under[d + 1];
        under[d + 1] = 0;
        under[d] |= all | t->below[i];
        t->below[i] = all;
    }
    free(at);
    free(under);
    memcpy(t->class_of, class_of, sizeof t->class_of);
    return 0;
}

/* Do all sequences of n bytes, the first within lo and hi, lead from state `from` to state `to`? 1,
 * 0, or an error. n is at most 3; *looks limits the cost. */
static int32_t leads_back(grammar *g, int32_t to, int32_t from, int n, uint8_t lo, uint8_t hi,
                          int *looks)
{
    if (n == 0)
        return from == to;
    for (int32_t c = g->class_of[lo]; c <= g->class_of[hi]; c++) {
        const int32_t next = --*looks < 0 ? GRAMMAR_REFUSED : grammar_next(g, from, c);
        const int32_t status = next < 0 ? next : leads_back(g, to, next, n - 1, 0x80, 0xbf, looks);
        if (status != 1)
            return status == GRAMMAR_REFUSED ? 0 : status;
    }
    return 1;
}

/* Sets state.loops; 0, or an error. */
static int32_t find_loops(grammar *g, trie *t, int32_t state)
{
    uint64_t others = ILL_FORMED, loops = 0;
    int looks = MAX_LOOKS;
    int32_t status = mark_below(t, g->class_of);
    for (int32_t b = 0; b < 256 && !status; b++) {
        if (b && g->class_of[b] == g->class_of[b - 1] && b != 0x80 && b != 0xc2 && b != 0xe0
            && b != 0xe1 && b != 0xed && b != 0xee && b != 0xf0 && b != 0xf1 && b != 0xf4
            && b != 0xf5)
            continue; /* like the byte before */
        uint8_t lo, hi;
        const int n = n_more(&lo, &hi, (uint8_t)b);
        const int32_t next = grammar_next(g, state, g->class_of[b]);
        if (b >= 0x80 && b <= 0xbf && next >= 0)
            return 0; /* within a character */
        const int32_t back = next < 0 ? next
            : n < 0                   ? 0
                                      : leads_back(g, state, next, n, lo, hi, &looks);
        if (back < GRAMMAR_REFUSED)
            return back;
        *(back == 1 ? &loops : &others) |= bit_of(g->class_of[b]);
    }
    g->has_loops = 1;
    g->state[state].loops = loops & ~others; /* all classes of a bit must lead back */
    return status;
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
            allowed[t->tokens[k] / 64] |= (uint64_t)1 << t->tokens[k] % 64;
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
    /* out of memory: the next call walks again */
    if ((state->mask = malloc(n_bytes ? n_bytes : 1))) {
        memcpy(state->mask, allowed, n_bytes);
        g->n_mask_bytes += n_bytes;
    }
    return 0;
}

int32_t candidates_of_dense(candidate *out, const float *logits, const uint64_t *allowed,
                            int32_t n_vocab)
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

int32_t candidates_of_candidates(candidate *out, const candidate *in, const uint64_t *allowed,
                                 int32_t n)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (allowed[in[i].id / 64] >> in[i].id % 64 & 1)
            out[kept++] = in[i];
    return kept;
}
