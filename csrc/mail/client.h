/* client.h - ask a resident worker (`classify --listen SOCKET`) about one message. */
#ifndef SLUICE_CLIENT_H
#define SLUICE_CLIENT_H
#include <stddef.h>
#include <stdint.h>

enum {
    WORKER_ANSWERED, /* line holds the answer, for mark_read */
    /* no process listens, or none accepted within wait_ms because the queue is full */
    WORKER_ABSENT,
    WORKER_CLOSED,         /* the connection ended before a whole line */
    WORKER_PROTOCOL_ERROR, /* more than a line, or a line that is too long */
    WORKER_TIMEOUT,        /* the deadline passed */
    WORKER_BROKEN /* a system call failed here (no descriptor left, path too long): errno */
};
enum { WORKER_LINE = 512, WORKER_WAIT_MS = 200 };

/* What is asked beyond the message; NULL: not given. lib/sluice/serve/request.py has the words. */
typedef struct {
    const char *user;   /* whose calibration: worker_user */
    const char *client; /* the host that delivered the message: worker_address */
    int explain;        /* further words: why */
} worker_request;

enum { WORKER_USER = 41, WORKER_ADDRESS = 46 };
/* user [WORKER_USER] = the user in an address, USER[+EXTENSION][@DOMAIN], in lower case:
 * 1 to 40 of a-z 0-9 . _ - and no dot at the begin.  0, or -1: there is none in it. */
int worker_user(char *user, const char *address);
/* address [WORKER_ADDRESS] = the IP address in text, also [ADDRESS] and IPv6:ADDRESS.  0, or -1. */
int worker_address(char *address, const char *text);

/* CLOCK_MONOTONIC in milliseconds, which no change of the clock moves. */
int64_t now_ms(void);
/* Writes mail [n_bytes] to the worker that listens at `path`, and reads its line: zero-terminated,
 * without the newline. wait_ms: how long to try where the queue of connections is full;
 * WORKER_WAIT_MS does.  deadline: in now_ms's time.  Returns WORKER_..., leaves no descriptor,
 * raises no SIGPIPE, sets no signal and no timer. */
int worker_ask(char line[WORKER_LINE], const char *path, const worker_request *asked,
               const uint8_t *mail, size_t n_bytes, int64_t wait_ms, int64_t deadline);
/* The same; tell(arg) is called about every ten seconds while it waits. */
int worker_ask_progress(char line[WORKER_LINE], const char *path, const worker_request *asked,
                        const uint8_t *mail, size_t n_bytes, int64_t wait_ms, int64_t deadline,
                        void (*tell)(void *), void *arg);
#endif
