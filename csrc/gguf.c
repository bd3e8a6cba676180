/* gguf.c - pass over the string arrays of GGUF metadata.
 *
 * A vocabulary is 32,000 to 262,144 strings {u64 n_bytes, bytes}; in Python
 * passing them costs as much as starting the program.  Reads 8 bytes a string.
 * Every length is checked against the bytes that are there before it is used. */
#include <string.h>
#include "internal.h"

int32_t gguf_skip_strings(gguf_scan *out, const uint8_t *buf, uint64_t size, uint64_t at, uint64_t n, uint64_t max_bytes)
{
    out->n_done = 0;
    out->n_bytes = 0;
    int32_t status = 0;
    while (out->n_done < n && at <= size && size - at >= 8) {
        uint64_t n_bytes;
        memcpy(&n_bytes, buf + at, 8);
        out->n_bytes = n_bytes;
        if (n_bytes > max_bytes) {
            status = -1;
            break;
        }
        if (size - at - 8 < n_bytes)
            break;
        at += 8 + n_bytes;
        out->n_done++;
        out->n_bytes = 0;
    }
    out->at = at;
    return status;
}
