/* mail.h - a message as an MTA sends it, header by header and chunk by chunk: its bytes, within
 * limits, and its X-Spam headers. */
#include <stddef.h>
#include <stdint.h>
#include "api/mail.h"

enum { MAIL_CHECKED = -1 };

/* The name of an X-Spam header and the number of its occurrences. */
typedef struct {
    char *name; /* without trailing spaces, as first written */
    uint32_t n;
    int is_ours; /* one of the four that this program writes */
} own_name;

typedef struct {
    uint8_t *bytes; /* headers, empty line, body; lines end in CRLF */
    size_t n_bytes, n_allocated;
    uint64_t n_headers;
    own_name *own; /* [n_own] */
    size_t n_own, own_bytes;
    uint64_t n_forged; /* X-Spam headers in all */
    uint64_t n_left;   /* X-Spam headers that will stay: too many names */
    /* MAIL_CHECKED: to be classified; else the reason why not (MARK_SIZE, MARK_MEMORY,
     * MARK_SKIPPED) and `bytes` is empty */
    int32_t reason;
} mail;

/* Limits in bytes of one message, and of all messages in memory. Set once, before the first
 * message.
 */
extern struct mail_limits { size_t one, all; } mail_limits;

/* Make m an empty mail; what it held is freed. The first time it must be all zeros. */
void mail_clear(mail *m);
/* Free the bytes: the message will be marked with `reason`. */
void mail_give_up(mail *m, int32_t reason);
/* Append bytes as they are. */
void mail_add(mail *m, const void *bytes, size_t n);
/* Append a header as the milter protocol has it: its lines are separated by \n. with_space: its
 * value begins with the space that was after the colon. An X-Spam header is counted, too. */
void mail_add_header(mail *m, const char *name, const char *value, int with_space);
