/* bpe.c - text to ids: byte-level BPE, and the list of merges that it and Gemma 4 go by.
 *
 * Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2: a text is cut into words
 * (pretokenize.c), the bytes of each are its symbols, and these are merged (merge.c), the pair that stands first in a list of
 * merges first. Files write each byte as one printable character, the byte-level alphabet: bytes that print in Latin-1 as themselves, the
 * others, ascending, as U+0100 to U+0143 (a blank is U+0120). Words are turned into that alphabet and merged there, so that
 * the texts of tokens are compared where they lie in the file.
 *
 * A byte without a token (StarCoder has none for F1, which begins the planes 4 to 7 of Unicode) is passed over, and what is beside
 * it is merged as if it were not there, as in Hugging Face tokenizers.
 *
 * A merge is known by the token that it makes and the length of its left half, so the list is kept with the tokens: which halves
 * a text has is seen where it is merged. A merge of halves that no text can have is never made, as in llama.cpp. */
#include <string.h>
#include "internal.h"

enum { MAX_TEXT_BYTES = 1024 };

/* ---- the alphabet ---- */

static inline uint32_t letter_of(uint8_t byte)
{
    if (byte < 33)
        return 0x100u + byte;
    if (byte >= 127 && byte <= 160)
        return 0x100u + 33 + byte - 127;
    return byte == 173 ? 0x100 + 67 : byte;
}

int32_t alphabet_byte(uint32_t *n_bytes, const uint8_t *p, uint64_t n)
{
    *n_bytes = 1;
    if (p[0] < 0x80)
        return p[0] >= 33 && p[0] < 127 ? p[0] : -1;
    if (n < 2 || utf8_bytes(p, n) != 2)
        return -1;
    *n_bytes = 2;
    const uint32_t point = (p[0] & 31u) << 6 | (p[1] & 63u);
    if (point < 0x100)
        return point > 160 && point != 173 ? (int32_t)point : -1;
    const uint32_t k = point - 0x100;
    return k < 33 ? (int32_t)k : k < 67 ? (int32_t)k - 33 + 127 : k == 67 ? 173 : -1;
}

static inline uint64_t put_letter(uint8_t *out, uint8_t byte)
{
    const uint32_t point = letter_of(byte);
    if (point < 0x80)
        return out[0] = (uint8_t)point, 1;
    out[0] = (uint8_t)(0xc0 | point >> 6);
    out[1] = (uint8_t)(0x80 | (point & 63));
    return 2;
}

uint64_t alphabet_encode(uint8_t *out, const uint8_t *text, uint64_t n_bytes)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < n_bytes; i++)
        n += put_letter(out + n, text[i]);
    return n;
}

/* The same, only of the bytes that are tokens: how many, in *n_known. */
static uint64_t letters_of(uint8_t *out, uint64_t *n_known, const vocab *v, const uint8_t *text, uint64_t n_bytes)
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

uint64_t utf8_repair(uint8_t *out, const uint8_t *text, uint64_t n_bytes)
{
    uint64_t n = 0;
    for (uint64_t i = 0, step; i < n_bytes; i += step) {
        step = utf8_bytes(text + i, n_bytes - i);
        memcpy(out + n, step ? text + i : (const uint8_t *)"\xef\xbf\xbd", step ? step : 3); /* U+FFFD */
        n += step ? step : 3;
        step = step ? step : 1;
    }
    return n;
}

/* ---- words ---- */

/* The next word, or user defined token, from `at`: its end. *cut: where the text between user defined tokens ends.
 * *id: that token, or -1. */
static uint64_t next_word(int32_t *id, uint64_t *cut, word_ends *w, const vocab *v, uint32_t user, const uint8_t *text,
                          uint64_t at, uint64_t n_bytes)
{
    *id = -1;
    if (at >= *cut) {
        const uint64_t n = vocab_match(v, text + at, n_bytes - at, user);
        if (n) {
            *id = vocab_find(v, text + at, n, user_kinds(user));
            return at + n;
        }
        for (*cut = at; *cut < n_bytes && !vocab_match(v, text + *cut, n_bytes - *cut, user); ++*cut)
            ;
    }
    return pretokenize(w, text, at, *cut, v->pre);
}

uint64_t bpe_longest(const vocab *v, uint32_t user, const uint8_t *text, uint64_t n_bytes)
{
    word_ends w = { .end = {0} };
    uint64_t longest = 0, cut = 0;
    int32_t id;
    for (uint64_t at = 0, end; at < n_bytes; at = end) {
        end = next_word(&id, &cut, &w, v, user, text, at, n_bytes);
        if (id < 0 && end - at > longest)
            longest = end - at;
    }
    return longest;
}

uint64_t bpe_encode(int32_t *id, const uint8_t *text, uint64_t n_bytes, const vocab *v, uint32_t user, uint8_t *letters,
                    merge_symbol *symbol, merge_pair *pair)
{
    merger m = { .v = v, .kinds = v->text_kinds, .text = letters, .symbol = symbol, .pair = pair, .id = id };
    word_ends w = { .end = {0} };
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

/* ---- the list of merges ---- */

__extension__ typedef unsigned __int128 uint128;

static inline uint128 load16(const uint8_t *p)
{
    uint128 w;
    memcpy(&w, p, 16);
    return w;
}

static inline uint128 first_bytes(uint64_t n) { return ((uint128)1 << 8 * n) - 1; } /* n < 16 */

/* Where the blank of a line [n] is, not at its begin: a half may begin with one.  n: there is none. */
static inline uint64_t find_blank(const uint8_t *line, uint64_t n)
{
    uint64_t i = 1;
    while (i < n && line[i] != ' ')
        i++;
    return i;
}

/* The same for a line of at most 16 bytes, of which 16 can be read. */
static inline uint64_t find_blank_16(uint128 line, uint64_t n)
{
    const uint64_t one = 0x0101010101010101u;
    /* blanks are zero, but the first byte */
    const uint64_t a = ((uint64_t)line ^ ' ' * one) | 0xff, b = (uint64_t)(line >> 64) ^ ' ' * one;
    const uint64_t in_a = (a - one) & ~a & 0x80 * one, in_b = (b - one) & ~b & 0x80 * one; /* the lowest bit set is that of a zero */
    const uint64_t i = in_a ? (uint64_t)__builtin_ctzll(in_a) / 8 : in_b ? 8 + (uint64_t)__builtin_ctzll(in_b) / 8 : n;
    return i < n ? i : n;
}

/* Whether token `id` is of kind normal and has the text of a line [n] without its blank at `left`. */
static inline int makes(const vocab *v, int32_t id, const uint8_t *line, uint64_t n, uint64_t left)
{
    if (id < 0 || id >= v->n_vocab || v->piece[id].kind != PIECE_NORMAL || v->piece[id].n_bytes != n - 1)
        return 0;
    const uint8_t *text = v->tokens + v->piece[id].at;
    return !memcmp(text, line, left) && !memcmp(text + left, line + left + 1, n - 1 - left);
}

/* The same for a line of at most 16 bytes, `joined` without its blank, where 16 of the token's can be read. */
static inline int makes_16(const vocab *v, int32_t id, uint128 joined, uint64_t n)
{
    if (id < 0 || id >= v->n_vocab || v->piece[id].kind != PIECE_NORMAL || v->piece[id].n_bytes != n - 1)
        return 0;
    return !((load16(v->tokens + v->piece[id].at) ^ joined) & first_bytes(n - 1));
}

/* The token that a line [n] makes, -1: none.  before: what the line before made.  Lists are in the order of the tokens, as a rule, so
 * that one and the next are looked at before the hash table.  Most texts are short: compared as one number where 16 bytes
 * can be read, a list of 514,906 takes a fifth less time. */
static inline int32_t made_by(const vocab *v, int32_t before, const uint8_t *line, uint64_t n, uint64_t left, uint128 short_line)
{
    const int32_t last = before + 1;
    if (short_line && last < v->n_vocab && v->piece[last].at + 16 <= v->tokens_bytes) {
        const uint128 keep = first_bytes(left), joined = (short_line & keep) | (short_line >> 8 & ~keep);
        for (int32_t id = before; id <= last; id++)
            if (makes_16(v, id, joined, n))
                return id;
    } else
        for (int32_t id = before; id <= last; id++)
            if (makes(v, id, line, n, left))
                return id;
    uint8_t text[MAX_TEXT_BYTES];
    memcpy(text, line, left);
    memcpy(text + left, line + left + 1, n - 1 - left);
    return vocab_find(v, text, n - 1, 1u << PIECE_NORMAL);
}

int32_t vocab_index_merges(vocab_clash *out, vocab *v)
{
    const uint8_t *p = v->merges, *end = p + v->merges_bytes;
    int32_t id = -1;
    for (int32_t i = 0; i < v->n_merge; i++) {
        uint64_t n;
        memcpy(&n, p, 8);
        p += 8;
        out->id = i;
        const uint128 short_line = n <= 16 && end - p >= 16 ? load16(p) : 0;
        const uint64_t left = short_line ? find_blank_16(short_line, n) : find_blank(p, n);
        if (left + 1 >= n)
            return 1;
        id = n - 1 > v->max_bytes ? -1 : made_by(v, id, p, n, left, short_line);
        if (id < 0)
            return 2;
        const uint32_t other = find_merge(v, id, left);
        if (other) {
            out->other = (int32_t)other - 1;
            return 3;
        }
        v->n_left[i] = (uint16_t)left;
        v->merge_before[i] = v->last_merge[id];
        v->last_merge[id] = (uint32_t)i + 1;
        p += n;
    }
    return 0;
}
