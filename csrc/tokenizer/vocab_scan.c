/* vocab_scan.c - read the tokens of a vocabulary from GGUF metadata: check them, and sort them into
 * kinds. The texts stay in the file's metadata.
 *
 * Text never becomes a control token. It becomes user defined pieces: they are matched before
 * merging, the leftmost first, then the longest. In GGUF files chat and image markers may be user
 * defined pieces, too. A caller can exclude these for a message, which must not forge a turn;
 * marks.c recognizes them. A marker that ends a turn (v->end_marks) is a control token whatever its
 * type, as in llama.cpp.
 *
 * Two programs make user defined pieces of a SentencePiece vocabulary. They differ if a space is
 * put before the text. Pieces of SentencePiece itself are matched behind that space. Pieces added
 * by transformers split the text first, and each part gets a space. llama.cpp's converter gives
 * added pieces the score -1000, and usually control tokens, too. If no control token has this
 * score, only markers count as added.
 *
 * SentencePiece writes a space as U+2581, in its pieces, too. In GGUF files user defined pieces
 * have spaces instead, because llama.cpp compares raw text; `respelt` has them with U+2581 again.
 * If two pieces differ only in this, text becomes the one with spaces in the file.
 *
 * Hostile files: the length of each text, its type, its score and byte tokens are checked here
 * before use. */
#include <math.h>
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

static const float ADDED_SCORE = -1000;

/* Is there a U+2581 after another character? */
static int spans_words(const uint8_t *text, uint32_t n)
{
    const uint8_t *end = text + n, *p = text;
    while (end - p >= 3 && (p = memchr(p, 0xe2, (size_t)(end - p) - 2)) != NULL) {
        if (p[1] == 0x96 && p[2] == 0x81 && p > text
            && !(p - text >= 3 && white_space(p - 3, 3) == 3))
            return 1;
        p++;
    }
    return 0;
}

static int is_end_mark(const vocab *v, const uint8_t *text, uint32_t n)
{
    for (const uint8_t *p = v->end_marks, *end = p + v->end_marks_bytes;
         (p = memchr(p, 0, (size_t)(end - p))) != NULL && ++p < end;)
        if ((uint64_t)(end - p) > n && !p[n] && !memcmp(p, text, n))
            return 1;
    return 0;
}

/* Do scores tell which tokens transformers added? Then a control token or the unknown token has the
 * score of added tokens. */
static uint8_t has_added_scores(const vocab *v)
{
    for (int32_t id = 0; id < v->n_vocab && v->scores && v->add_prefix; id++) {
        int32_t type;
        float score;
        memcpy(&score, v->scores + 4 * (size_t)id, 4);
        memcpy(&type, v->types + 4 * (size_t)id, 4);
        if (score == ADDED_SCORE && (type == PIECE_CONTROL || type == PIECE_UNKNOWN))
            return 1;
    }
    return 0;
}

/* The kind of a piece of type user defined. */
static uint8_t user_kind(const vocab *v, const vocab_piece *piece, const uint8_t *text)
{
    const int mark = is_marker(text, piece->n_bytes);
    if (mark && is_end_mark(v, text, piece->n_bytes))
        return PIECE_CONTROL;
    if (piece->score == ADDED_SCORE && v->model == VOCAB_SPM && v->add_prefix
        && (mark || v->added_scores))
        return mark ? PIECE_ADDED_MARKER : PIECE_ADDED;
    return mark ? PIECE_MARKER : PIECE_USER;
}

/* Writes U+2581 for the spaces of a user defined piece, if it fits in `respelt`; if not, the
 * vocabulary exceeds MAX_TRIE_BYTES and is refused. */
static void respell(vocab *v, vocab_piece *piece)
{
    const uint8_t *text = v->tokens + piece->at, *end = text + piece->n_bytes;
    uint8_t *out = v->respelt + v->respelt_bytes;
    if (!memchr(text, ' ', piece->n_bytes)
        || v->respelt_bytes + 3u * piece->n_bytes > v->respelt_capacity)
        return;
    for (; text < end; text++)
        if (*text == ' ') {
            memcpy(out, SPACE, 3);
            out += 3;
        } else
            *out++ = *text;
    piece->at = v->respelt_bytes;
    piece->n_bytes = (uint16_t)(out - v->respelt - v->respelt_bytes);
    piece->flags |= PIECE_RESPELT;
    v->respelt_bytes += piece->n_bytes;
}

static int is_utf8(const uint8_t *text, uint32_t n)
{
    for (uint32_t i = 0, step; i < n; i += step)
        if (!(step = utf8_bytes(text + i, n - i)))
            return 0;
    return 1;
}

/* Adds one token to v. 0, or an error of vocab_scan. */
static int32_t scan_token(vocab *v, int32_t id, int32_t type)
{
    vocab_piece *piece = v->piece + id;
    const uint8_t *text = v->tokens + piece->at;
    if (!isfinite(piece->score))
        return 1;
    if (type < PIECE_NORMAL || type > PIECE_BYTE)
        return 2;
    piece->kind = type == PIECE_USER ? user_kind(v, piece, text) : (uint8_t)type;
    v->has_unused |= type == PIECE_UNUSED && v->model == VOCAB_SPM;
    v->has_added |= piece->kind == PIECE_ADDED || piece->kind == PIECE_ADDED_MARKER;
    if (type == PIECE_BYTE && v->model == VOCAB_BYTES)
        return 6;
    if (is_user(piece->kind) && v->model == VOCAB_BYTES && !is_utf8(text, piece->n_bytes))
        return 7; /* it could match inside a character, but pretokenize needs whole ones */
    if (is_user(piece->kind) && v->model != VOCAB_BYTES)
        respell(v, piece);
    if (type == PIECE_BYTE) {
        const int32_t byte = byte_value(text, piece->n_bytes);
        if (byte < 0)
            return 3;
        v->has_bytes = 1;
        v->byte_id[byte] = id;
    }
    if (v->text_kinds >> piece->kind & 1) {
        v->max_bytes = piece->n_bytes > v->max_bytes ? piece->n_bytes : v->max_bytes;
        if (v->words_apart && spans_words(piece_text(v, piece), piece->n_bytes))
            v->words_apart = 0;
    }
    return 0;
}

int32_t vocab_scan(vocab_clash *out, vocab *v, const int32_t *special, int32_t n_special)
{
    uint64_t at = 0;
    memset(v->byte_id, -1, sizeof v->byte_id);
    v->max_bytes = v->trie_bytes = v->text_bytes = v->respelt_bytes = 0;
    v->has_bytes = v->has_unused = v->has_added = 0;
    v->added_scores = has_added_scores(v);
    v->words_apart = 1;
    v->text_kinds = 1u << PIECE_NORMAL;
    if (v->model == VOCAB_SPM)
        v->text_kinds |= 1u << PIECE_USER | 1u << PIECE_MARKER | 1u << PIECE_UNUSED;
    for (int32_t id = 0; id < v->n_vocab; id++) {
        vocab_piece *piece = v->piece + id;
        int32_t type;
        uint64_t n_bytes;
        memcpy(&n_bytes, v->tokens + at, 8);
        out->id = id;
        if (n_bytes > MAX_TOKEN_BYTES)
            return 4;
        piece->at = (uint32_t)(at + 8);
        piece->n_bytes = (uint16_t)n_bytes;
        piece->flags = 0;
        at += 8 + n_bytes;
        piece->score = 0;
        if (v->scores)
            memcpy(&piece->score, v->scores + 4 * (size_t)id, 4);
        memcpy(&type, v->types + 4 * (size_t)id, 4);
        for (int32_t i = 0; i < n_special; i++)
            if (special[i] == id
                && (type == PIECE_NORMAL || type == PIECE_USER || type == PIECE_UNUSED))
                type = PIECE_CONTROL;
        const int32_t status = scan_token(v, id, type);
        if (status)
            return status;
        v->text_bytes += (uint32_t)n_bytes;
        if (set_of(piece->kind))
            v->trie_bytes += piece->n_bytes;
    }
    for (int32_t i = 0; i < 256 && v->has_bytes; i++)
        if (v->byte_id[i] < 0) {
            out->other = i;
            return 5;
        }
    return 0;
}

void vocab_flag(vocab *v, uint32_t kinds, uint8_t flags)
{
    for (int32_t id = 0; id < v->n_vocab; id++)
        if (kinds >> v->piece[id].kind & 1)
            v->piece[id].flags |= flags;
}
