/* utf8.c - replace invalid UTF-8 by U+FFFD. */
#include <string.h>
#include "api/tokenizer.h"
#include "tokenizer/utf8.h"

uint64_t utf8_repair(uint8_t *out, const uint8_t *text, uint64_t n_bytes)
{
    uint64_t n = 0;
    for (uint64_t i = 0, step; i < n_bytes; i += step) {
        step = utf8_bytes(text + i, n_bytes - i);
        memcpy(out + n, step ? text + i : (const uint8_t *)"\xef\xbf\xbd",
               step ? step : 3); /* U+FFFD */
        n += step ? step : 3;
        step = step ? step : 1;
    }
    return n;
}
