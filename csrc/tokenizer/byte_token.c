/* byte_token.c - the names of byte tokens, <0x00> to <0xFF>, which serve as byte fallback. */
#include "tokenizer/vocabulary.h"

int32_t byte_value(const uint8_t *text, uint32_t n_bytes)
{
    static const char digits[] = "0123456789ABCDEF";
    if (n_bytes != 6 || memcmp(text, "<0x", 3) || text[5] != '>' || !text[3] || !text[4])
        return -1;
    const char *high = strchr(digits, text[3]), *low = strchr(digits, text[4]);
    return high && low ? (int32_t)((high - digits) * 16 + (low - digits)) : -1;
}
