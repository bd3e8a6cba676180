/* gguf.c - pass over the string arrays of GGUF metadata.
 *
 * A vocabulary is 32,000 to 262,144 strings {u64 n_bytes, bytes}, its merges as
 * many again or twice that; in Python passing them costs more than starting the
 * program.  Reads 8 bytes a string.  A length is compared with what is left
 * before it is used, and nothing is added that could pass the end of the buffer. */
#include <string.h>
#include "api/formats.h"

int32_t gguf_skip_strings(gguf_scan *out, const uint8_t *buf, uint64_t size, uint64_t at,
                          uint64_t n, uint64_t max_bytes)
{
    uint64_t left = at < size ? size - at : 0, i = 0, n_bytes = 0;
    const uint8_t *p = buf + (size - left);
    int32_t status = 0;
    for (; i < n && left >= 8; i++) {
        memcpy(&n_bytes, p, 8);
        if (n_bytes > max_bytes) {
            status = -1;
            break;
        }
        if (n_bytes > left - 8)
            break;
        p += 8 + n_bytes;
        left -= 8 + n_bytes;
        n_bytes = 0;
    }
    *out = (gguf_scan){.at = size - left, .n_done = i, .n_bytes = n_bytes};
    return status;
}
