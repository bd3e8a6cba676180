/* mail.h - the X-Spam headers of a message. */
#ifndef SLUICE_API_MAIL_H
#define SLUICE_API_MAIL_H
#include <stdint.h>

/* ---- marking.c: the X-Spam headers of a message -------------------------------------- */

enum { MARK_YES, MARK_NO, MARK_UNSURE, MARK_UNCHECKED };
enum {
    MARK_TIMEOUT,
    MARK_SIZE,
    MARK_MEMORY,
    MARK_CRASHED,
    MARK_MODEL,
    MARK_EMPTY,
    MARK_ATTEMPTS,
    MARK_INPUT,
    MARK_WORKER,
    MARK_SKIPPED
};
enum { MARK_BYTES = 1024 }; /* enough for mark_headers */

typedef struct {
    /* MARK_YES: the first answer of the question; MARK_NO: another one; MARK_UNSURE;
     * MARK_UNCHECKED: no verdict */
    int32_t answer;
    int32_t reason; /* of MARK_UNCHECKED: MARK_TIMEOUT ... MARK_SKIPPED */
    /* "0.9931", zero-terminated as the others: probability of the first answer */
    char score[7];
    char required[7];  /* threshold of the first answer */
    char model[17];    /* 16 hexadecimal digits */
    char rule[41];     /* the rule that gave the answer: a-z 0-9 . _ -; "": none */
    char numbers[65];  /* "model=+2.31 tokens=+0.80 taught=120"; "": not asked for */
    char signals[161]; /* "dkim:pass,list": a-z : , -; with numbers */
} mail_verdict;

/* The word of a reason ("timeout"), or NULL for an unknown number. */
const char *mark_word(int32_t reason);
/* Parses a line of `classify --long` or of a worker, without its newline: "yes 0.9931
 * 0.9386 3f9a0c1b2d4e5f60" (or no, unsure), or "error WORD".  Behind a verdict may stand "
 * rule=NAME" and " model=N tokens=N taught=N signals=WORD,...".  Returns 0, or -1 for any other
 * line. */
int32_t mark_read(mail_verdict *out, const uint8_t *line, uint64_t n_bytes);
/* out [MARK_BYTES] = the headers of a verdict, each "Name: value\n", zero-terminated.  Returns
 * their bytes. */
int64_t mark_headers(char *out, const mail_verdict *v);

typedef struct {
    uint64_t n_out;     /* bytes of the new header section: at most n_read + 2 head_bytes + 4 */
    uint64_t n_read;    /* bytes of the message that it replaces; the rest stays as it is */
    uint64_t n_removed; /* headers that were removed */
    uint64_t n_status;  /* X-Spam-Status headers among them */
} mail_marking;

/* to [n_out] = the header section of mail [n_bytes] without X-Spam headers, with `head`
 * [head_bytes], lines that end in \n, at its top.  to = NULL: only fills *out.  Added lines end as
 * the first line of the message does; without a head nothing is added. */
void mark_mail(mail_marking *out, uint8_t *to, const uint8_t *mail, uint64_t n_bytes,
               const uint8_t *head, uint64_t head_bytes);
#endif
