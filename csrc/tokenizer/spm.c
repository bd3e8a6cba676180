/* spm.c - text to tokens by SentencePiece BPE, with byte fallback; and by the tokenizer of Gemma 4.
 *
 * Kudo & Richardson 2018, "SentencePiece", arXiv:1808.06226. A space is written U+2581, and the
 * characters of the whole text are merged (merge.c). Gemma 4 does the same with a list of merges in
 * place of scores.
 *
 * Before merging, the text is split where no merge can span: around user defined pieces and, if no
 * piece has a U+2581 after another character, before each word. This changes no token, because the
 * order of merges within a part does not depend on other parts. It keeps the queue in cache, and
 * memory proportional to the longest part.
 *
 * Pieces of type UNUSED are merged, and split again at the end into the halves of their last merge
 * anywhere in the text. With such pieces the text is not split, so that "last" means the same as in
 * SentencePiece. */
#include <string.h>
#include "tokenizer/merge.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

/* Bytes of the next unit of raw text: a user defined piece, a character, or an invalid byte. *out
 * [*n_out]: its normalized form. */
static uint64_t next_unit(const uint8_t **out, uint64_t *n_out, const vocab *v, uint32_t user,
                          const uint8_t *p, uint64_t n)
{
    uint64_t n_bytes = vocab_match(v, p, n, user);
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

uint64_t spm_normalize(uint8_t *out, const vocab *v, uint32_t user, const uint8_t *text,
                       uint64_t n_bytes, int32_t add_prefix, int32_t remove_extra)
{
    const uint8_t *end = text + n_bytes, *unit;
    uint64_t n = 0, n_unit, n_used;
    while (remove_extra && text < end) {
        n_used = next_unit(&unit, &n_unit, v, user, text, (uint64_t)(end - text));
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
        text += next_unit(&unit, &n_unit, v, user, text, (uint64_t)(end - text));
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

/* Bytes of the next symbol of a normalized text. *frozen: it is a user defined piece, which is not
 * merged. */
static inline uint64_t next_symbol(int *frozen, const vocab *v, uint32_t user, const uint8_t *p,
                                   uint64_t n)
{
    uint64_t n_bytes = vocab_match(v, p, n, user);
    *frozen = n_bytes != 0;
    if (!n_bytes) {
        n_bytes = utf8_bytes(p, n);
        n_bytes = n_bytes ? n_bytes : 1;
    }
    return n_bytes;
}

/* May the text be split before the symbol at `at`? */
static inline int begins_word(const vocab *v, const uint8_t *text, uint64_t n_bytes, uint64_t at)
{
    return v->words_apart && !v->has_unused && is_space(text + at, n_bytes - at)
        && !(at >= 3 && is_space(text + at - 3, 3));
}

uint64_t spm_longest(const vocab *v, uint32_t user, const uint8_t *text, uint64_t n_bytes)
{
    uint64_t longest = 1, n = 0;
    int frozen;
    for (uint64_t at = 0, step; at < n_bytes; at += step) {
        step = next_symbol(&frozen, v, user, text + at, n_bytes - at);
        if (frozen && !v->has_unused)
            n = 0;
        else
            n = begins_word(v, text, n_bytes, at) ? 1 : n + 1;
        longest = n > longest ? n : longest;
    }
    return longest;
}

uint64_t spm_encode(int32_t *id, const uint8_t *text, uint64_t n_bytes, const vocab *v,
                    uint32_t user, merge_symbol *symbol, merge_pair *pair, uint32_t *split)
{
    const uint32_t kinds = v->text_kinds & (user_kinds(user) | ~user_kinds(SET_USER | SET_MARKER));
    merger m = {.v = v,
                .kinds = kinds,
                .text = text,
                .symbol = symbol,
                .pair = pair,
                .split = split,
                .id = id};
    int frozen;
    if (v->has_unused)
        memset(split, 0, (size_t)v->n_vocab * sizeof *split);
    for (uint64_t at = 0, step; at < n_bytes; at += step) {
        step = next_symbol(&frozen, v, user, text + at, n_bytes - at);
        const int cut = frozen && !v->has_unused;
        if (cut || begins_word(v, text, n_bytes, at))
            merge_finish(&m);
        if (cut)
            merge_emit(&m, text + at, (uint32_t)step,
                       vocab_find(v, text + at, step, user_kinds(user)));
        else
            merge_add(&m, at, step, frozen);
    }
    merge_finish(&m);
    return (uint64_t)(m.id - id);
}
