/* alphabet.c - the alphabet of byte-level BPE: each byte as one printable character. Printable
 * bytes of Latin-1 stand for themselves; the others, ascending, are U+0100 to U+0143 (the space is
 * U+0120). Source: Radford et al. 2019, section 2.2, bytes_to_unicode in OpenAI's encoder.py. */
#include "tokenizer/alphabet.h"
#include "tokenizer/utf8.h"

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

uint64_t alphabet_encode(uint8_t *out, const uint8_t *text, uint64_t n_bytes)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < n_bytes; i++)
        n += put_letter(out + n, text[i]);
    return n;
}
