/* alphabet.h - the byte-level alphabet, in which files write the tokens of byte-level vocabularies.
 */
#ifndef SLUICE_TOKENIZER_ALPHABET_H
#define SLUICE_TOKENIZER_ALPHABET_H
#include "api/tokenizer.h"

static inline uint32_t letter_of(uint8_t byte)
{
    if (byte < 33)
        return 0x100u + byte;
    if (byte >= 127 && byte <= 160)
        return 0x100u + 33 + byte - 127;
    return byte == 173 ? 0x100 + 67 : byte;
}

/* out [2] = the letter of a byte, in UTF-8.  Returns its bytes. */
static inline uint64_t put_letter(uint8_t *out, uint8_t byte)
{
    const uint32_t point = letter_of(byte);
    if (point < 0x80)
        return out[0] = (uint8_t)point, 1;
    out[0] = (uint8_t)(0xc0 | point >> 6);
    out[1] = (uint8_t)(0x80 | (point & 63));
    return 2;
}

/* The byte that the character at p [n] stands for; -1: it is not in the alphabet. n >= 1; *n_bytes:
 * bytes of the character. */
int32_t alphabet_byte(uint32_t *n_bytes, const uint8_t *p, uint64_t n);
#endif
