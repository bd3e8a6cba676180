/* spm.c - text to ids: SentencePiece BPE.
 *
 * Kudo & Richardson 2018, "SentencePiece", arXiv:1808.06226; the merges are those
 * of Sennrich et al. 2015, arXiv:1508.07909, chosen by score: of all neighbouring
 * symbols whose joined text is a piece, the pair with the highest score is joined
 * first, of equal scores the leftmost.  A priority queue and a linked list make
 * it n log n.  What is left and is no piece becomes its bytes (`<0xE2>` ...) or,
 * where there are no byte tokens, one unknown id for the whole run.
 *
 * The text is cut before it is merged wherever no merge can reach across: around
 * a user defined piece, and, if no piece holds a blank (U+2581) after another
 * character, at the begin of every word.  That changes no id, because the order of
 * merges within a part does not depend on the others; it keeps the queue in cache
 * and memory proportional to the longest part.
 *
 * Pieces of type UNUSED take part in merging and are taken apart again at the end,
 * as they were last put together anywhere; with them the text is not cut, so
 * that "last" means the same as in SentencePiece. */
#include <string.h>
#include "internal.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
enum { SET_USER = 1, MAX_TEXT_BYTES = 1024 };
#define TEXT_KINDS (1u << NORMAL | 1u << USER_DEFINED | 1u << UNUSED)
static const uint8_t SPACE[3] = {0xe2, 0x96, 0x81}; /* U+2581, written for a blank */

static inline int is_space(const uint8_t *p, uint64_t n_bytes)
{
    return n_bytes >= 3 && !memcmp(p, SPACE, 3);
}

/* Bytes of the UTF-8 character at p, 0: it is not one (overlong, surrogate, beyond U+10FFFF, cut). */
static inline uint32_t utf8_bytes(const uint8_t *p, uint64_t n)
{
    const uint8_t c = p[0];
    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4 || n < 2 || p[1] >> 6 != 2)
        return 0;
    if (c < 0xe0)
        return 2;
    if (n < 3 || p[2] >> 6 != 2)
        return 0;
    if (c < 0xf0)
        return (c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f) ? 0 : 3;
    if (n < 4 || p[3] >> 6 != 2)
        return 0;
    return (c == 0xf0 && p[1] < 0x90) || (c == 0xf4 && p[1] > 0x8f) ? 0 : 4;
}

/* The next unit of raw text: a user defined piece, a character, or a bad byte.  *out, *n_out: what stands for it. */
static uint64_t next_unit(const uint8_t **out, uint64_t *n_out, const spm *v, const uint8_t *p, uint64_t n)
{
    uint64_t n_bytes = spm_match(v, p, n, SET_USER);
    *out = p;
    if (!n_bytes)
        n_bytes = utf8_bytes(p, n);
    *n_out = n_bytes;
    if (n_bytes)
        return n_bytes;
    *out = (const uint8_t *)"\xef\xbf\xbd"; /* U+FFFD */
    *n_out = 3;
    return 1;
}

uint64_t spm_normalize(uint8_t *out, const spm *v, const uint8_t *text, uint64_t n_bytes, int32_t add_prefix,
                       int32_t remove_extra)
{
    const uint8_t *end = text + n_bytes, *unit;
    uint64_t n = 0, n_unit, n_used;
    while (remove_extra && text < end) {
        n_used = next_unit(&unit, &n_unit, v, text, (uint64_t)(end - text));
        if (n_unit != 1 || *unit != ' ')
            break;
        text += n_used;
    }
    if (text == end)
        return 0;
    if (add_prefix) {
        memcpy(out, SPACE, 3);
        n = 3;
    }
    int after_space = remove_extra;
    while (text < end) {
        text += next_unit(&unit, &n_unit, v, text, (uint64_t)(end - text));
        while (after_space && n_unit && *unit == ' ')
            unit++, n_unit--;
        for (uint64_t i = 0; i < n_unit; i++) {
            if (unit[i] == ' ') {
                memcpy(out + n, SPACE, 3);
                n += 3;
            } else
                out[n++] = unit[i];
        }
        if (n_unit)
            after_space = remove_extra && unit[n_unit - 1] == ' ';
    }
    while (remove_extra && n >= 3 && is_space(out + n - 3, 3))
        n -= 3;
    return n;
}

/* The next symbol of a normalized text: its bytes.  *frozen: it is a user defined piece, and merges with nothing. */
static inline uint64_t next_symbol(int *frozen, const spm *v, const uint8_t *p, uint64_t n)
{
    uint64_t n_bytes = spm_match(v, p, n, SET_USER);
    *frozen = n_bytes != 0;
    if (!n_bytes) {
        n_bytes = utf8_bytes(p, n);
        n_bytes = n_bytes ? n_bytes : 1;
    }
    return n_bytes;
}

/* May the symbol at `at` begin a part of its own? */
static inline int begins_word(const spm *v, const uint8_t *text, uint64_t n_bytes, uint64_t at)
{
    return v->words_apart && !v->has_unused && is_space(text + at, n_bytes - at) && !(at >= 3 && is_space(text + at - 3, 3));
}

uint64_t spm_longest(const spm *v, const uint8_t *text, uint64_t n_bytes)
{
    uint64_t longest = 1, n = 0;
    int frozen;
    for (uint64_t at = 0, step; at < n_bytes; at += step) {
        step = next_symbol(&frozen, v, text + at, n_bytes - at);
        if (frozen && !v->has_unused)
            n = 0;
        else
            n = begins_word(v, text, n_bytes, at) ? 1 : n + 1;
        longest = n > longest ? n : longest;
    }
    return longest;
}

/* ---- merging one part: the queue is a binary heap, the greatest key on top ---- */

typedef struct {
    const spm *v;
    const uint8_t *text;
    spm_symbol *symbol;
    spm_pair *pair;
    uint32_t *split; /* [n_vocab] of an unused piece: bytes of its left half, when last seen */
    uint64_t n_pair;
    int32_t n_symbol;
    int32_t *id; /* where the next id goes */
    int after_unknown;
} merger;

/* Ascending with the score, and among equal scores descending with the place. */
static inline uint64_t pair_key(float score, int32_t left)
{
    const uint32_t u = f32_bits(score + 0.0f); /* -0 becomes +0 */
    const uint32_t ordered = u >> 31 ? ~u : u | 0x80000000u;
    return (uint64_t)ordered << 32 | (uint32_t)~left;
}

static void push(merger *m, spm_pair new)
{
    uint64_t i = m->n_pair++;
    for (uint64_t up; i && m->pair[up = (i - 1) / 2].key < new.key; i = up)
        m->pair[i] = m->pair[up];
    m->pair[i] = new;
}

static spm_pair pop(merger *m)
{
    const spm_pair top = m->pair[0], last = m->pair[--m->n_pair];
    const uint64_t n = m->n_pair;
    uint64_t i = 0;
    for (uint64_t down; (down = 2 * i + 1) < n; i = down) {
        if (down + 1 < n && m->pair[down + 1].key > m->pair[down].key)
            down++;
        if (m->pair[down].key <= last.key)
            break;
        m->pair[i] = m->pair[down];
    }
    m->pair[i] = last;
    return top;
}

/* Enters left and the symbol after it into the queue, if together they are a piece. */
static inline void consider(merger *m, int32_t left)
{
    if (left < 0 || m->symbol[left].next < 0)
        return;
    const spm_symbol *a = m->symbol + left;
    const uint32_t n_bytes = a->n_bytes + m->symbol[a->next].n_bytes;
    if (n_bytes > m->v->max_bytes || a->id == -2 || m->symbol[a->next].id == -2)
        return;
    const int32_t id = spm_find(m->v, m->text + a->at, n_bytes, TEXT_KINDS);
    if (id < 0)
        return;
    if (m->v->piece[id].kind == UNUSED)
        m->split[id] = a->n_bytes;
    push(m, (spm_pair){ .key = pair_key(m->v->piece[id].score, left), .n_bytes = n_bytes, .id = id });
}

static void merge(merger *m)
{
    for (int32_t i = 0; i + 1 < m->n_symbol; i++)
        consider(m, i);
    while (m->n_pair) {
        const spm_pair top = pop(m);
        const int32_t left = (int32_t)~(uint32_t)top.key;
        spm_symbol *a = m->symbol + left;
        /* Stale where either has grown or gone since: the sum of bytes tells. */
        if (!a->n_bytes || a->next < 0 || a->n_bytes + m->symbol[a->next].n_bytes != top.n_bytes)
            continue;
        spm_symbol *b = m->symbol + a->next;
        a->n_bytes = top.n_bytes;
        a->id = top.id;
        a->next = b->next;
        b->n_bytes = 0;
        if (a->next >= 0)
            m->symbol[a->next].prev = left;
        consider(m, a->prev);
        consider(m, left);
    }
}

/* The id of a symbol that stays as it is, or what stands for a text that no piece spells. */
static void emit(merger *m, const uint8_t *text, uint32_t n_bytes, int32_t id)
{
    if (id < 0 && m->v->has_bytes)
        for (uint32_t i = 0; i < n_bytes; i++)
            *m->id++ = m->v->byte_id[text[i]];
    else if (id >= 0 || !m->after_unknown)
        *m->id++ = id < 0 ? m->v->unknown : id;
    m->after_unknown = id < 0 && !m->v->has_bytes;
}

/* As emit, but an unused piece is taken apart again until nothing in it is one; a character that is one is unknown. */
static void emit_parts(merger *m, const uint8_t *text, uint32_t n_bytes, int32_t id)
{
    struct { uint32_t at, n_bytes; } todo[MAX_TEXT_BYTES + 1]; /* disjoint parts of one piece, so never more */
    int n = 0;
    uint32_t at = 0;
    for (;;) {
        const int unused = id >= 0 && m->v->piece[id].kind == UNUSED;
        const uint32_t left = unused ? m->split[id] : 0;
        if (left) {
            todo[n].at = at + left;
            todo[n++].n_bytes = n_bytes - left;
            n_bytes = left;
        } else {
            emit(m, text + at, n_bytes, unused ? -1 : id);
            if (!n)
                return;
            at = todo[--n].at;
            n_bytes = todo[n].n_bytes;
        }
        id = spm_find(m->v, text + at, n_bytes, TEXT_KINDS);
    }
}

/* Merges what has been collected, writes its ids, begins anew. */
static void finish_part(merger *m)
{
    if (!m->n_symbol)
        return;
    m->symbol[m->n_symbol - 1].next = -1;
    merge(m);
    for (int32_t i = 0; i >= 0; i = m->symbol[i].next) {
        const spm_symbol *s = m->symbol + i;
        const int32_t id = s->id < 0 ? spm_find(m->v, m->text + s->at, s->n_bytes, TEXT_KINDS) : s->id;
        (m->v->has_unused ? emit_parts : emit)(m, m->text + s->at, s->n_bytes, id);
    }
    m->n_symbol = 0;
}

uint64_t spm_encode(int32_t *id, const uint8_t *text, uint64_t n_bytes, const spm *v, spm_symbol *symbol, spm_pair *pair,
                    uint32_t *split)
{
    merger m = { .v = v, .text = text, .symbol = symbol, .pair = pair, .split = split, .id = id };
    int frozen;
    if (v->has_unused)
        memset(split, 0, (size_t)v->n_vocab * sizeof *split);
    for (uint64_t at = 0, step; at < n_bytes; at += step) {
        step = next_symbol(&frozen, v, text + at, n_bytes - at);
        const int cut = frozen && !v->has_unused;
        if (cut || begins_word(v, text, n_bytes, at))
            finish_part(&m);
        if (cut)
            emit(&m, text + at, (uint32_t)step, spm_find(v, text + at, step, 1u << USER_DEFINED));
        else {
            const int32_t i = m.n_symbol++;
            symbol[i] = (spm_symbol){ .prev = i - 1, .next = i + 1, .at = (uint32_t)at, .n_bytes = (uint32_t)step,
                                      .id = frozen ? -2 : -1 }; /* -2: merges with nothing */
        }
    }
    finish_part(&m);
    return (uint64_t)(m.id - id);
}
