/* mask.c - the token mask of a grammar: the tokens that it allows next.
 *
 * The trie of the vocabulary is walked in preorder together with the grammar's states (Willard &
 * Louf 2023, arXiv:2307.09702, for regular grammars). A subtree without a state is skipped, so a
 * small mask costs little. If a state leads back to itself by each character below a node (the
 * inside of a string), the whole subtree is allowed. The mask is cached with the state.
 *
 * Within a string no walk over the whole trie is needed (mask_within). Where plain characters lead
 * is known (plain.c), and so is which tokens have how many of them (split.c): tokens of plain
 * characters are allowed as a set, up to the number that the string may still have. What follows
 * them is walked once for each state that it may meet. Characters that lead elsewhere, since a
 * name begins with them, are taken out of the set and walked.
 *
 * The characters below a node are a set of 64 bits: bit k < 63 for the ASCII and lead bytes of
 * class k (mod 63), bit 63 if some text is not UTF-8 from the node on. Bit k of a state's `loops`
 * is set if each character that begins with such a byte leads back to the state. */
#include <stdlib.h>
#include <string.h>
#include "grammar/matcher.h"
#include "grammar/plain.h"
#include "grammar/split.h"

enum {
    MAX_MASK_BYTES = 8 << 20,
    BUSY = 4000, /* visits after which it pays to find a state's loops */
    MAX_LOOKS = 1024
};
#define ILL_FORMED ((uint64_t)1 << 63)

static uint64_t bit_of(int32_t class) { return (uint64_t)1 << class % 63; }

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

/* Which tokens of a trie of rests are meant: those whose plain characters lead to `target`. */
struct filter {
    const uint8_t *n_plain;
    const int32_t *after; /* the state after n plain characters and the rest's first byte */
    int32_t target;
};

static void allow(uint64_t *allowed, int32_t id) { allowed[id / 64] |= (uint64_t)1 << id % 64; }

/* Allows the tokens of nodes [i, to) whose texts the grammar matches; path[0 .. depth of i) are the
 * states above. f: NULL, or which tokens to allow. Clears *last if one of them may be followed. */
static int32_t walk(uint64_t *allowed, int32_t *last, grammar *g, trie *t, int32_t i, int32_t to,
                    const struct filter *f)
{
    int32_t *path = t->path;
    while (i < to) {
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
        int whole = 0;
        if (t->plain && t->plain[i] && t->end[i] > i + 1) {
            const int32_t after = plain_next(g, s);
            if (after < 0 && after >= GRAMMAR_NO_MEMORY)
                return after;
            whole = after == s;
        }
        struct grammar_states *state = g->state + s;
        if (!whole && t->split && state->n_visit < BUSY && ++state->n_visit == BUSY) {
            int32_t status = plain_next(g, s);
            if (status != s && (status >= 0 || status < GRAMMAR_NO_MEMORY))
                status = find_loops(g, t, s);
            if (status < 0)
                return status;
            state = g->state + s;
        }
        if (!whole && t->split && state->loops)
            whole = !(t->below[i] & ~state->loops);
        const int32_t next = whole ? t->end[i] : i + 1;
        int32_t n_allowed = 0;
        for (int32_t k = t->first[i]; k < t->first[next]; k++) {
            const int32_t id = t->tokens[k];
            if (f && f->after[f->n_plain[id]] != f->target)
                continue;
            allow(allowed, id);
            n_allowed++;
        }
        if (n_allowed && state->n)
            *last = 0;
        i = next;
    }
    return 0;
}

/* Allows the tokens of plain characters, at most `run` of them. */
static void allow_plain(uint64_t *allowed, const struct split *s, size_t n_word, int32_t run)
{
    int k = 0;
    while (k < N_LENGTH - 1 && split_lengths[k] < run)
        k++;
    const int above = split_lengths[k] < s->longest ? split_lengths[k] : s->longest;
    const int below = k ? split_lengths[k - 1] : 0;
    if (run >= s->longest
        || s->first[above + 1] - s->first[run + 1]
            <= s->first[run + 1] - s->first[below + 1]) { /* a larger set, less some tokens */
        for (size_t w = 0; w < n_word; w++)
            allowed[w] |= s->upto[k][w];
        for (int32_t i = s->first[run + 1]; run < above && i < s->first[above + 1]; i++)
            allowed[s->tokens[i] / 64] &= ~((uint64_t)1 << s->tokens[i] % 64);
        return;
    }
    if (k)
        for (size_t w = 0; w < n_word; w++)
            allowed[w] |= s->upto[k - 1][w];
    for (int32_t i = s->first[below + 1]; i < s->first[run + 1]; i++)
        allow(allowed, s->tokens[i]);
}

/* The mask of a state within a string, from the parts of split.c. 0, 1 if the state is none, or an
 * error. */
static int32_t mask_within(uint64_t *allowed, int32_t *last, grammar *g, trie *t)
{
    struct split *s = t->split;
    int32_t chain[MAX_RUN + 1], after[MAX_RUN + 1], run = 0;
    uint64_t but[2] = {0, 0};
    chain[0] = g->current;
    int32_t first = plain_next(g, g->current);
    if (first == PLAIN_MIXED) {
        first = plain_next_but(g, g->current, but);
        if (first >= 0 && (plain_next(g, first) == PLAIN_MIXED || first == g->current))
            return 1; /* characters differ behind the first one, too */
    }
    if (first < 0)
        return first >= GRAMMAR_NO_MEMORY ? first : 1;
    chain[1] = first;
    run = first != g->current;
    for (; run < MAX_RUN; run++) { /* chain[n]: the state after n plain characters */
        const int32_t next = plain_next(g, chain[run]);
        if (next == PLAIN_MIXED)
            return 1;
        if (next == PLAIN_NONE)
            break;
        if (next < 0)
            return next;
        chain[run + 1] = next;
        if (next == chain[run]) {
            for (; run < MAX_RUN; run++)
                chain[run + 1] = next;
            break;
        }
    }
    for (int32_t n = 1; n <= run && *last; n++)
        if (s->first[n + 1] > s->first[n] && g->state[chain[n]].n)
            *last = 0;
    allow_plain(allowed, s, ((size_t)t->n_vocab + 63) / 64, run);
    trie *rest = s->rest;
    for (int32_t i = 1, status; i < rest->n_node; i = rest->end[i]) {
        const int32_t class = g->class_of[rest->byte[i]];
        const struct filter all = {s->n_plain, after, 0};
        for (int32_t n = 0; n <= MAX_RUN; n++) {
            after[n] = n > run                  ? GRAMMAR_REFUSED
                : n && chain[n] == chain[n - 1] ? after[n - 1]
                                                : grammar_next(g, chain[n], class);
            if (after[n] < GRAMMAR_REFUSED)
                return after[n];
        }
        for (int32_t n = 0; n <= run; n++) { /* each distinct state once */
            int32_t before = 0;
            while (before < n && after[before] != after[n])
                before++;
            if (after[n] < 0 || before < n)
                continue;
            struct filter f = all;
            f.target = after[n];
            rest->path[0] = chain[n];
            if ((status = walk(allowed, last, g, rest, i, rest->end[i], &f)))
                return status;
        }
    }
    for (int32_t i = 1, status; (but[0] || but[1]) && i < t->n_node; i = t->end[i]) {
        if (t->byte[i] >= 128 || !(but[t->byte[i] / 64] >> t->byte[i] % 64 & 1))
            continue;
        for (int32_t k = t->first[i]; k < t->first[t->end[i]]; k++)
            allowed[t->tokens[k] / 64] &= ~((uint64_t)1 << t->tokens[k] % 64);
        if ((status = walk(allowed, last, g, t, i, t->end[i], NULL)))
            return status;
    }
    s->odd->path[0] = g->current;
    return walk(allowed, last, g, s->odd, 1, s->odd->n_node, NULL);
}

/* Allows what the token terminals of the current state allow. */
static void allow_terminals(uint64_t *allowed, int32_t *last, const grammar *g, int32_t n_vocab)
{
    const struct grammar_states s = g->state[g->current];
    for (int32_t i = 0; i < s.n; i++) {
        const grammar_node node = g->node[g->config[s.first + i].node];
        if (node.op != GRAMMAR_TOKEN)
            continue;
        const grammar_token *t = g->token + node.a;
        for (int32_t id = 0; id < n_vocab && t->negated; id++)
            if (id != t->id)
                allow(allowed, id);
        if (!t->negated)
            allow(allowed, t->id);
        *last = 0; /* whether it is the last one shows when it has been chosen */
    }
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
    *last = 1;
    t->path[0] = g->current;
    status = t->split ? mask_within(allowed, last, g, t) : 1;
    if (status == 1)
        status = walk(allowed, last, g, t, 1, t->n_node, NULL);
    if (status)
        return status;
    if (g->has_tokens)
        allow_terminals(allowed, last, g, t->n_vocab);
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

int32_t tokens_of_mask(int32_t *out, int32_t max, const uint64_t *allowed, int32_t n_vocab)
{
    int32_t n = 0;
    for (int32_t w = 0; w < (n_vocab + 63) / 64; w++)
        for (uint64_t bits = allowed[w]; bits; bits &= bits - 1) {
            if (n == max)
                return -1;
            out[n++] = w * 64 + __builtin_ctzll(bits);
        }
    return n;
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

void candidates_of_rows(candidate *out, const int32_t *id, const float *logit, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        out[i].id = id[i];
        memcpy(&out[i].logit, logit + i, sizeof *logit);
    }
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
