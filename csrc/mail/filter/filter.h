/* filter.h - the interfaces between the files of mail-filter.  main.c has the contract: exit with
 * 0 or 75, and with 0 only after the message was delivered.  So no function here exits; each
 * returns its error. */
#ifndef SLUICE_MAIL_FILTER_H
#define SLUICE_MAIL_FILTER_H
#include <stddef.h>
#include <stdint.h>
#include "api/mail.h"
#include "mail/client.h"

enum { DELIVERED = 0, DEFERRED = 75 };

/* ---- limits.c ---------------------------------------------------------------- */

/* Ends the process with 75 if its limits are too small. Calls nothing of the C library. */
void limits_check(void);

/* ---- options.c --------------------------------------------------------------- */

enum { N_AUTHSERV_IDS = 8 };
enum deliver { DELIVER_HEADERS, DELIVER_UNCHANGED, DELIVER_NOTHING, DELIVER_STDOUT };
typedef struct {
    const char *sender, *queue_id; /* NULL: not given */
    /* NULL: not given, but classify: could not be found */
    const char *classify, *model, *question, *threads, *cache, *calibration;
    const char *socket, *sendmail, *spool, *state, *log, *rules, *learned_in;
    const char *authserv_ids[N_AUTHSERV_IDS];
    int n_authserv_ids;
    char client[WORKER_ADDRESS]; /* the host that delivered the message, "": unknown */
    char user[WORKER_USER];      /* whose calibration, "": the site's */
    char **recipients;           /* NULL at the end */
    int n_recipients;
    int64_t deadline_ms, read_ms, send_ms;
    uint64_t max_bytes, spool_bytes, memory_bytes;
    enum deliver deliver;
    int defer, trust_earlier, worker_only, by_recipient, explain;
} options;

enum { OPTIONS_RUN, OPTIONS_SHOWN, OPTIONS_WRONG };
/* Fills o; OPTIONS_SHOWN: --help or --version was printed; OPTIONS_WRONG: why [why_bytes] is the
 * error message. */
int options_read(options *o, int argc, char **argv, char *why, size_t why_bytes);

/* ---- log.c ---------------------------------------------------------------------- */

/* Lines go to syslog's mail facility, or to the end of `file`, or to stderr ("-"), there after all
 * else. Never waits. */
void log_open(const char *file);
__attribute__((format(printf, 1, 2))) void log_line(const char *format, ...);
void log_close(void);
/* text = from [n_bytes] on one line of printable ASCII, cut to fit text [text_bytes]. */
void log_clean(char *text, size_t text_bytes, const char *from, size_t n_bytes);

/* ---- spool.c -------------------------------------------------------------------- */

typedef struct {
    int fd; /* of a file without a name, open for reading only; -1: none */
    uint64_t n_bytes;
    const uint8_t *data; /* mapped, by spool_mail */
} spool;

/* Reads `in` to its end into a file in `directory`.  0, or -1: errno (EFBIG more than `limit`
 * bytes, ETIMEDOUT). */
int spool_mail(spool *s, int in, const char *directory, uint64_t limit, int64_t deadline);
/* A file of head [head_bytes] and rest [rest_bytes].  0 or -1: errno. */
int spool_parts(spool *s, const char *directory, const uint8_t *head, uint64_t head_bytes,
                const uint8_t *rest, uint64_t rest_bytes);
/* Writes all to fd, waiting for it until the deadline.  0 or -1: errno. */
int write_whole(int fd, const uint8_t *data, uint64_t n_bytes, int64_t deadline);

/* ---- child.c -------------------------------------------------------------------- */

typedef struct {
    char *const *argv, *const *env;
    int in; /* its stdin, read from the start */
    /* its stderr: 1 to where its stdout goes, 0 nowhere */
    int errors;
    /* 0: no limit of ours; file_bytes counts if memory_bytes is given */
    uint64_t memory_bytes, cpu_seconds, file_bytes;
    int64_t deadline;
    char *out; /* [out_bytes] the first of what it writes */
    size_t out_bytes;
} child;
typedef struct {
    int failed; /* errno: it was not started */
    int late;   /* the deadline passed, and it was killed */
    int code;   /* its exit status, -1: a signal */
    int signal;
    size_t n_out; /* bytes in out */
    int more;     /* it wrote more than that */
} child_end;
/* Runs a program in a process group of its own and returns when it has ended, its whole group
 * killed. */
void child_run(child_end *end, const child *c);

/* ---- classify.c ----------------------------------------------------------------- */

typedef struct {
    const char *by;     /* worker, process, none */
    const char *worker; /* result: -, answered, absent, closed, protocol-error, timeout, broken */
    int ran;            /* whether a process was started; then: */
    child_end end;
} verdict_source;
/* Gets the verdict on a message from the worker or from a process. */
void classify(mail_verdict *v, verdict_source *how, const options *o, const spool *mail);

/* ---- attempts.c ------------------------------------------------------------------ */

enum { ATTEMPTS_BEFORE_PASSING = 2, ATTEMPTS_MAX = 9 };
typedef struct {
    int fd; /* of the directory, -1: nothing is counted */
    char name[96];
    int begun;   /* classifications that began and did not come back here */
    int refused; /* deliveries that sendmail refused for good */
} attempts;
/* Reads the counts of earlier attempts at this message for these recipients.  After any error
 * nothing is counted. */
void attempts_open(attempts *a, const options *o);
void attempts_write(attempts *a, int begun, int refused);
void attempts_done(attempts *a);

/* ---- deliver.c -------------------------------------------------------------------- */

/* Gives the file to sendmail.  NULL: delivered, else the error; *refused: sendmail's exit status is
 * one after which a retry is pointless. */
const char *deliver(const options *o, const spool *mail, const char *id, int *refused);
/* The environment of children: a PATH, and for sendmail what pipe(8) exports. */
char *const *child_environment(int for_sendmail);
#endif
