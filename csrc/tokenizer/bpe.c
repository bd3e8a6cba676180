/* bpe.c - text to tokens by byte-level BPE (byte-pair encoding), as in GPT-2.
 *
 * Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2. The
 * pre-tokenizer splits a text into words (pretokenize.c). The bytes of a word are its symbols. BPE
 * merges join two symbols at a time (merge.c), the pair that is first in the list of merges first.
 * Files write each byte as one printable character (alphabet.h). Words are merged in that alphabet,
 * so the texts of tokens are compared in place, in the mapped file.
 *
 * A byte without a token is skipped, and its neighbours are merged as if it were absent, as in
 * Hugging Face tokenizers. (StarCoder lacks 0xF1, the first byte of planes 4 to 7 of Unicode.) */
#include "tokenizer/alphabet.h"
#include "tokenizer/merge.h"
#include "tokenizer/vocabulary.h"

/* out [2 n_bytes] = text in the alphabet, without bytes that are not tokens; *n_known: bytes that
 * are. Returns the bytes written. */
static uint64_t letters_of(uint8_t *out, uint64_t *n_known, const vocab *v, const uint8_t *text,
                           uint64_t n_bytes)
{
    uint64_t n = 0;
    *n_known = 0;
    for (uint64_t i = 0; i < n_bytes; i++)
        if (v->byte_id[text[i]] >= 0) {
            n += put_letter(out + n, text[i]);
            ++*n_known;
        }
    return n;
}

/* The end of the word, or user defined token, that begins at `at`. *cut: the end of the text before
 * the next user defined token. *id: the user defined token, or -1 for a word. */
static uint64_t next_word(int32_t *id, uint64_t *cut, word_ends *w, const vocab *v, uint32_t user,
                          const uint8_t *text, uint64_t at, uint64_t n_bytes)
{
    *id = -1;
    if (at >= *cut) {
        const uint64_t n = vocab_match(v, text + at, n_bytes - at, user);
        if (n) {
            *id = vocab_find(v, text + at, n, user_kinds(user));
            return at + n;
        }
        for (*cut = at; *cut < n_bytes && !vocab_match(v, text + *cut, n_bytes - *cut, user);
             ++*cut)
            ;
    }
    return pretokenize(w, text, at, *cut, v->pre);
}

uint64_t bpe_longest(const vocab *v, uint32_t user, const uint8_t *text, uint64_t n_bytes)
{
    word_ends w = {.end = {0}};
    uint64_t longest = 0, cut = 0;
    int32_t id;
    for (uint64_t at = 0, end; at < n_bytes; at = end) {
        end = next_word(&id, &cut, &w, v, user, text, at, n_bytes);
        if (id < 0 && end - at > longest)
            longest = end - at;
    }
    return longest;
}

uint64_t bpe_encode(int32_t *id, const uint8_t *text, uint64_t n_bytes, const vocab *v,
                    uint32_t user, uint8_t *letters, merge_symbol *symbol, merge_pair *pair)
{
    merger m = {
        .v = v, .kinds = v->text_kinds, .text = letters, .symbol = symbol, .pair = pair, .id = id};
    word_ends w = {.end = {0}};
    uint64_t cut = 0;
    int32_t whole;
    for (uint64_t at = 0, end; at < n_bytes; at = end) {
        end = next_word(&whole, &cut, &w, v, user, text, at, n_bytes);
        if (whole < 0) {
            uint64_t n_known;
            const uint64_t n = letters_of(letters, &n_known, v, text + at, end - at);
            if (v->ignore_merges && n_known == end - at && n <= v->max_bytes)
                whole = vocab_find(v, letters, n, v->text_kinds);
            for (uint64_t i = 0, step; whole < 0 && i < n; i += step) {
                step = letters[i] < 0x80 ? 1 : 2;
                merge_add(&m, i, step, 0);
            }
        }
        if (whole < 0)
            merge_finish(&m);
        else
            *m.id++ = whole;
    }
    return (uint64_t)(m.id - id);
}
