/* utf8.h - validate UTF-8 (RFC 3629), one character at a time. */
#ifndef SLUICE_TOKENIZER_UTF8_H
#define SLUICE_TOKENIZER_UTF8_H
#include <stdint.h>

/* Bytes of the UTF-8 character at p [n]; 0: invalid (overlong, surrogate, beyond U+10FFFF, cut). */
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
#endif
