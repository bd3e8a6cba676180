/* merge.c - BPE merges: symbols to tokens. Sennrich et al. 2015, arXiv:1508.07909.
 *
 * A part of a text is a linked list of symbols. While two neighbours can be merged, the pair with
 * the highest priority is, of equal pairs the leftmost. A priority queue (a binary heap with the
 * greatest key on top) makes it O(n log n) for any text. The pairs and their priorities:
 *
 *   SentencePiece    pairs whose joined text is a piece; the highest score first
 *   byte-level BPE   pairs whose halves are a line of the vocabulary's merges (merge_list.c); the
 *   and Gemma 4      earliest line first
 *
 * Byte fallback: a symbol that is not a piece at the end becomes byte tokens (`<0xE2>` ...).
 * Without byte tokens, a run of such symbols becomes one unknown token. (In a byte-level vocabulary
 * every symbol is a token.) */
#include "runtime/float_bits.h"
#include "tokenizer/merge.h"
#include "tokenizer/vocabulary.h"

/* An integer that orders like the score. */
static inline uint32_t score_order(float score)
{
    const uint32_t u = f32_bits(score + 0.0f); /* -0 becomes +0 */
    return u >> 31 ? ~u : u | 0x80000000u;
}

static void push(merger *m, merge_pair new)
{
    uint64_t i = m->n_pair++;
    for (uint64_t up; i && m->pair[up = (i - 1) / 2].key < new.key; i = up)
        m->pair[i] = m->pair[up];
    m->pair[i] = new;
}

static merge_pair pop(merger *m)
{
    const merge_pair top = m->pair[0], last = m->pair[--m->n_pair];
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

/* The priority of a pair whose joined text is piece `id` and whose left half has n_left bytes; -1:
 * it is not merged. */
static inline int64_t pair_priority(const vocab *v, int32_t id, uint32_t n_left)
{
    if (v->model == VOCAB_SPM)
        return score_order(v->piece[id].score);
    const uint32_t i = find_merge(v, id, n_left);
    return i ? (int64_t)UINT32_MAX - i : -1;
}

/* Queues symbol `left` and the next one, if they can be merged. */
static inline void queue_pair(merger *m, int32_t left)
{
    if (left < 0 || m->symbol[left].next < 0)
        return;
    const merge_symbol *a = m->symbol + left;
    const uint32_t n_bytes = a->n_bytes + m->symbol[a->next].n_bytes;
    if (n_bytes > m->v->max_bytes || a->id == -2 || m->symbol[a->next].id == -2)
        return;
    const int32_t id = vocab_find(m->v, m->text + a->at, n_bytes, m->kinds);
    const int64_t priority = id < 0 ? -1 : pair_priority(m->v, id, a->n_bytes);
    if (priority < 0)
        return;
    if (m->v->piece[id].kind == PIECE_UNUSED)
        m->split[id] = a->n_bytes;
    push(m,
         (merge_pair){
             .key = (uint64_t)priority << 32 | (uint32_t)~left, .n_bytes = n_bytes, .id = id});
}

static void merge(merger *m)
{
    for (int32_t i = 0; i + 1 < m->n_symbol; i++)
        queue_pair(m, i);
    while (m->n_pair) {
        const merge_pair top = pop(m);
        const int32_t left = (int32_t)~(uint32_t)top.key;
        merge_symbol *a = m->symbol + left;
        /* Stale if either symbol has grown or gone since: then the sum of bytes differs. */
        if (!a->n_bytes || a->next < 0 || a->n_bytes + m->symbol[a->next].n_bytes != top.n_bytes)
            continue;
        merge_symbol *b = m->symbol + a->next;
        a->n_bytes = top.n_bytes;
        a->id = top.id;
        a->next = b->next;
        b->n_bytes = 0;
        if (a->next >= 0)
            m->symbol[a->next].prev = left;
        queue_pair(m, a->prev);
        queue_pair(m, left);
    }
}

/* Writes token `id`; for -1, a text without a piece, its byte tokens (byte fallback) or unknown. */
void merge_emit(merger *m, const uint8_t *text, uint32_t n_bytes, int32_t id)
{
    if (id < 0 && m->v->has_bytes)
        for (uint32_t i = 0; i < n_bytes; i++)
            *m->id++ = m->v->byte_id[text[i]];
    else if (id >= 0 || !m->after_unknown)
        *m->id++ = id < 0 ? m->v->unknown : id;
    m->after_unknown = id < 0 && !m->v->has_bytes;
}

/* Like merge_emit, but an unused piece is split again until none of its parts is unused; an unused
 * character is unknown. */
static void emit_parts(merger *m, const uint8_t *text, uint32_t n_bytes, int32_t id)
{
    /* disjoint parts of one piece: at most its bytes */
    struct { uint32_t at, n_bytes; } todo[MAX_TOKEN_BYTES + 1];
    int n = 0;
    uint32_t at = 0;
    for (;;) {
        const int unused = id >= 0 && m->v->piece[id].kind == PIECE_UNUSED;
        const uint32_t left = unused ? m->split[id] : 0;
        if (left) {
            todo[n].at = at + left;
            todo[n++].n_bytes = n_bytes - left;
            n_bytes = left;
        } else {
            merge_emit(m, text + at, n_bytes, unused ? -1 : id);
            if (!n)
                return;
            at = todo[--n].at;
            n_bytes = todo[n].n_bytes;
        }
        id = vocab_find(m->v, text + at, n_bytes, m->kinds);
    }
}

void merge_add(merger *m, uint64_t at, uint64_t n_bytes, int frozen)
{
    const int32_t i = m->n_symbol++;
    m->symbol[i] = (merge_symbol){.prev = i - 1,
                                  .next = i + 1,
                                  .at = (uint32_t)at,
                                  .n_bytes = (uint32_t)n_bytes,
                                  .id = frozen ? -2 : -1}; /* -2: not merged */
}

void merge_finish(merger *m)
{
    if (!m->n_symbol)
        return;
    m->symbol[m->n_symbol - 1].next = -1;
    merge(m);
    for (int32_t i = 0; i >= 0; i = m->symbol[i].next) {
        const merge_symbol *s = m->symbol + i;
        const int32_t id =
            s->id < 0 ? vocab_find(m->v, m->text + s->at, s->n_bytes, m->kinds) : s->id;
        (m->v->has_unused ? emit_parts : merge_emit)(m, m->text + s->at, s->n_bytes, id);
    }
    m->n_symbol = 0;
}
