/* split.c - the tokens of a vocabulary by the plain characters that they begin with.
 *
 * Plain are all characters but quote, backslash and control characters: those that stand for
 * themselves in a JSON string. Most tokens have no others. Inside of a string all of them are
 * allowed, so their set is made once. Of the rest of the vocabulary only what comes behind the
 * plain characters matters, and many tokens have the same rest: the quote, the quote and a comma.
 * So the rests are a small trie of their own. Tokens that cut a character are a third set. */
#include <stdlib.h>
#include <string.h>
#include "grammar/split.h"

const uint8_t split_lengths[N_LENGTH] = {1, 2, 3, 4, 6, 8, 12, 20, MAX_RUN};

/* The length of the character at text[0 .. n); 0: not UTF-8, or cut. */
static uint32_t character(const uint8_t *text, uint32_t n)
{
    uint8_t lo, hi;
    const int more = n_more(&lo, &hi, text[0]);
    if (more < 0 || (uint32_t)more >= n)
        return 0;
    for (int i = 1; i <= more; i++) {
        if (text[i] < (i == 1 ? lo : 0x80) || text[i] > (i == 1 ? hi : 0xbf))
            return 0;
    }
    return (uint32_t)more + 1;
}

static int is_utf8(const uint8_t *text, uint32_t n)
{
    for (uint32_t i = 0, step; i < n; i += step)
        if (!(step = character(text + i, n - i)))
            return 0;
    return 1;
}

/* bytes missing of a character, and bounds of the next */
struct character {
    int8_t wait;
    uint8_t lo, hi;
};

/* plain[i]: if a character ends at node i, all that follows below it is plain and whole. */
static int32_t mark_plain(trie *t)
{
    /* at each depth: the character so far; whether something is not plain below the open node */
    struct character *at = calloc((size_t)t->max_depth + 2, sizeof *at);
    uint8_t *bad = calloc((size_t)t->max_depth + 2, sizeof *bad);
    t->plain = malloc((size_t)t->n_node);
    if (!at || !bad || !t->plain) {
        free(at);
        free(bad);
        return GRAMMAR_NO_MEMORY;
    }
    t->plain[0] = 1;
    for (int32_t i = 1; i < t->n_node; i++) { /* downwards: the node's own byte */
        const struct character before = at[t->depth[i] - 1];
        struct character *now = at + t->depth[i];
        const uint8_t b = t->byte[i];
        int good;
        if (before.wait > 0) {
            good = b >= before.lo && b <= before.hi;
            *now = (struct character){(int8_t)(before.wait - 1), 0x80, 0xbf};
        } else {
            const int more = n_more(&now->lo, &now->hi, b);
            good = more >= 0 && is_plain(b);
            now->wait = (int8_t)(more < 0 ? 0 : more);
        }
        const int ends = t->first[i + 1] > t->first[i];
        t->plain[i] = (uint8_t)(good && !(ends && now->wait > 0));
    }
    for (int32_t i = t->n_node - 1; i >= 0; i--) { /* upwards */
        const int32_t d = t->depth[i];
        const uint8_t below = bad[d + 1];
        bad[d + 1] = 0;
        bad[d] |= below | !t->plain[i];
        t->plain[i] = !below;
    }
    free(at);
    free(bad);
    return 0;
}

int32_t split_new(trie *t, const struct texts *x, const int32_t *ids, int32_t n)
{
    int32_t status = mark_plain(t);
    struct split *s = status ? NULL : calloc(1, sizeof *s);
    t->split = s;
    const size_t n_word = ((size_t)t->n_vocab + 63) / 64;
    int32_t *others = malloc(((size_t)n + 1) * sizeof *others);
    int32_t *odd = malloc(((size_t)n + 1) * sizeof *odd), n_other = 0, n_odd = 0;
    uint32_t *from = malloc(((size_t)t->n_vocab + 1) * sizeof *from);
    int ready = s && others && odd && from
        && (s->tokens = malloc(((size_t)n + 1) * sizeof *s->tokens))
        && (s->n_plain = calloc((size_t)t->n_vocab + 1, 1));
    for (int k = 0; k < N_LENGTH && ready; k++)
        ready = (s->upto[k] = calloc(n_word + 1, sizeof **s->upto)) != NULL;
    for (int32_t i = 0; i < n && ready; i++) {
        const int32_t id = ids[i];
        const uint8_t *text = x->text + x->from[id];
        const uint32_t n_bytes = x->to[id] - x->from[id];
        uint32_t at = 0, count = 0, step;
        while (at < n_bytes && count < MAX_RUN && is_plain(text[at])
               && (step = character(text + at, n_bytes - at))) {
            at += step;
            count++;
        }
        s->n_plain[id] = (uint8_t)count;
        from[id] = x->from[id] + at;
        if (at == n_bytes)
            s->first[count + 1]++;
        else if (count < MAX_RUN && is_utf8(text + at, n_bytes - at))
            others[n_other++] = id;
        else {
            odd[n_odd++] = id;
            s->n_plain[id] = 255;
        }
    }
    for (int c = 1; c <= MAX_RUN && ready; c++) {
        if (s->first[c + 1])
            s->longest = c;
        s->first[c + 1] += s->first[c];
    }
    int32_t *at = ready ? malloc((MAX_RUN + 2) * sizeof *at) : NULL;
    if (at)
        memcpy(at, s->first, (MAX_RUN + 2) * sizeof *at);
    for (int32_t i = 0; i < n && at; i++) {
        const int32_t id = ids[i];
        const int count = s->n_plain[id];
        if (count > MAX_RUN || from[id] != x->to[id])
            continue;
        s->tokens[at[count]++] = id;
        for (int k = 0; k < N_LENGTH; k++)
            if (count <= split_lengths[k])
                s->upto[k][id / 64] |= (uint64_t)1 << id % 64;
    }
    if (at) {
        const struct texts behind = {x->text, from, x->to};
        s->rest = trie_of(&behind, others, n_other, t->n_vocab);
        s->odd = trie_of(x, odd, n_odd, t->n_vocab);
    }
    status = at && s->rest && s->odd ? 0 : GRAMMAR_NO_MEMORY;
    free(at);
    free(others);
    free(odd);
    free(from);
    return status;
}

void split_free(struct split *s)
{
    if (!s)
        return;
    free(s->tokens);
    for (int k = 0; k < N_LENGTH; k++)
        free(s->upto[k]);
    free(s->n_plain);
    trie_free(s->rest);
    trie_free(s->odd);
    free(s);
}
