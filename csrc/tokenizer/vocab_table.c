/* vocab_table.c - the detokenizer's table: the text of each token. */
#include <string.h>
#include "tokenizer/alphabet.h"
#include "tokenizer/vocabulary.h"

/* out = the bytes that a text in the byte-level alphabet stands for, or the text itself if it has
 * other characters. Returns the number of bytes. */
static uint32_t alphabet_decode(uint8_t *out, const uint8_t *text, uint32_t n)
{
    uint32_t n_out = 0, step;
    for (uint32_t i = 0; i < n; i += step) {
        const int32_t byte = alphabet_byte(&step, text + i, n - i);
        if (byte < 0) {
            memcpy(out, text, n);
            return n;
        }
        out[n_out++] = (uint8_t)byte;
    }
    return n_out;
}

void vocab_table(uint8_t *text, uint32_t *offset, const vocab *v)
{
    uint32_t n = 0;
    for (int32_t id = 0; id < v->n_vocab; id++) {
        const vocab_piece *piece = v->piece + id;
        const uint8_t *p = piece_text(v, piece), *end = p + piece->n_bytes;
        offset[id] = n;
        if (piece->kind == PIECE_BYTE)
            text[n++] = (uint8_t)byte_value(p, piece->n_bytes);
        else if (v->model == VOCAB_BYTES && piece->kind == PIECE_NORMAL)
            n += alphabet_decode(text + n, p, piece->n_bytes);
        else if (v->model == VOCAB_BYTES && is_user(piece->kind)) {
            memcpy(text + n, p, piece->n_bytes);
            n += piece->n_bytes;
        } else if (piece->kind == PIECE_NORMAL || is_user(piece->kind))
            while (p < end) {
                const int is_space = white_space(p, (uint32_t)(end - p)) == 3;
                text[n++] = is_space ? ' ' : *p;
                p += is_space ? 3 : 1;
            }
    }
    offset[v->n_vocab] = n;
}
