/* client.c - ask a resident worker: send a message to a Unix stream socket, read one line.
 *
 * Diagnostics: WORKER_...
 * Guards against a worker that hangs, floods or goes away: all calls are non-blocking, so the
 * deadline holds.  A worker may answer before it has read the whole message (one that is too large)
 * and close: its answer is read even if sending failed.
 *
 * What is asked beyond the message is the abstract name of the client's socket, so no message can
 * forge it, and a worker that does not know it passes it over. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "mail/client.h"

enum { RETRY_MS = 10, PROGRESS_MS = 10000, POLL_MS = 60000, N_NAMES = 8 };

int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A callback that is called while the answer is awaited. */
typedef struct {
    void (*tell)(void *);
    void *arg;
    int64_t next;
} progress;

/* Milliseconds until `deadline`, 0 after it, at most until the next call of callback->tell, which
 * is called now if it is due. */
static int time_left(progress *callback, int64_t deadline)
{
    const int64_t now = now_ms(), left = deadline - now;
    if (left <= 0)
        return 0;
    if (!callback->tell)
        return left > POLL_MS ? POLL_MS : (int)left;
    if (now >= callback->next) {
        callback->tell(callback->arg);
        callback->next = now + PROGRESS_MS;
    }
    return (int)(left < callback->next - now ? left : callback->next - now);
}

int worker_user(char *user, const char *address)
{
    int n = 0;
    for (; *address && *address != '@' && *address != '+'; address++) {
        const char c = *address >= 'A' && *address <= 'Z' ? (char)(*address | 32) : *address;
        const int fits = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'
            || (c == '.' && n);
        if (!fits || n == WORKER_USER - 1)
            return -1;
        user[n++] = c;
    }
    user[n] = 0;
    return n ? 0 : -1;
}

int worker_address(char *address, const char *text)
{
    char copy[WORKER_ADDRESS];
    struct in6_addr parsed;
    text += *text == '[';
    text += strncmp(text, "IPv6:", 5) ? 0 : 5;
    const size_t n = strcspn(text, "]");
    if (n >= sizeof copy)
        return -1;
    memcpy(copy, text, n);
    copy[n] = 0;
    const int family = strchr(copy, ':') ? AF_INET6 : AF_INET;
    return inet_pton(family, copy, &parsed) == 1
            && inet_ntop(family, &parsed, address, WORKER_ADDRESS)
        ? 0
        : -1;
}

/* Gives the socket its name. Without one it works, too: if there is no room for one here. */
static void name_socket(int fd, const worker_request *asked)
{
    for (int i = 0; i < N_NAMES; i++) {
        struct sockaddr_un own = {.sun_family = AF_UNIX};
        uint32_t random = (uint32_t)now_ms() ^ (uint32_t)getpid();
        (void)!getrandom(&random, sizeof random, GRND_NONBLOCK);
        char *name = own.sun_path + 1;
        const size_t most = sizeof own.sun_path - 1;
        int n = snprintf(name, most, "sluice/1 %08x w%s%s%s", random, asked->explain ? " e" : "",
                         asked->user ? " u=" : "", asked->user ? asked->user : "");
        if (asked->client && n > 0 && (size_t)n < most)
            n += snprintf(name + n, most - (size_t)n, " c=%s", asked->client);
        if (n < 0 || (size_t)n >= most)
            return;
        const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
        if (!bind(fd, (struct sockaddr *)&own, size) || errno != EADDRINUSE)
            return;
    }
}

/* A socket connected to path, or -1 and the WORKER_... in *failed. */
static int connected(const char *path, const worker_request *asked, int64_t wait_ms,
                     int64_t deadline, progress *callback, int *failed)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const int64_t until = now_ms() + wait_ms;
    *failed = WORKER_BROKEN;
    if (strlen(path) >= sizeof to.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(to.sun_path, path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (asked)
        name_socket(fd, asked);
    while (connect(fd, (struct sockaddr *)&to, sizeof to)) {
        const int64_t now = now_ms();
        if (errno == EINTR)
            continue;
        /* A full queue is EAGAIN at once, and poll says nothing of when there is room: unix(7). */
        if (errno != EAGAIN || now >= until || now >= deadline) {
            *failed = errno == EAGAIN && now >= deadline && deadline < until ? WORKER_TIMEOUT
                                                                             : WORKER_ABSENT;
            close(fd);
            return -1;
        }
        time_left(callback, deadline);
        poll(NULL, 0, RETRY_MS);
    }
    return fd;
}

/* The exchange itself, on a connected socket. */
static int exchange(char line[WORKER_LINE], int fd, const uint8_t *mail, size_t n_bytes,
                    int64_t deadline, progress *callback)
{
    size_t n_line = 0;
    int writing = 1;
    for (;;) {
        struct pollfd p = {fd, (short)(writing ? POLLIN | POLLOUT : POLLIN), 0};
        const int left = time_left(callback, deadline);
        if (!left)
            return WORKER_TIMEOUT;
        if (poll(&p, 1, left) < 0 && errno != EINTR)
            return WORKER_BROKEN;
        if (writing && p.revents & (POLLOUT | POLLERR | POLLHUP)) {
            const ssize_t n = n_bytes ? send(fd, mail, n_bytes, MSG_NOSIGNAL) : 0;
            if (n > 0)
                mail += n, n_bytes -= (size_t)n;
            if (!n_bytes || (n < 0 && errno != EAGAIN && errno != EINTR)) {
                shutdown(fd, SHUT_WR);
                writing = 0;
            }
        }
        if (p.revents & (POLLIN | POLLERR | POLLHUP)) {
            const ssize_t n = recv(fd, line + n_line, WORKER_LINE - n_line, 0);
            if (n < 0 && (errno == EAGAIN || errno == EINTR))
                continue;
            if (n <= 0)
                return WORKER_CLOSED;
            n_line += (size_t)n;
            const char *end = memchr(line, '\n', n_line);
            if (end ? end != line + n_line - 1 : n_line == WORKER_LINE)
                return WORKER_PROTOCOL_ERROR;
            if (end) {
                line[n_line - 1] = 0;
                return WORKER_ANSWERED;
            }
        }
    }
}

int worker_ask_progress(char line[WORKER_LINE], const char *path, const worker_request *asked,
                        const uint8_t *mail, size_t n_bytes, int64_t wait_ms, int64_t deadline,
                        void (*tell)(void *), void *arg)
{
    int result;
    progress callback = {tell, arg, now_ms() + PROGRESS_MS};
    const int fd = connected(path, asked, wait_ms, deadline, &callback, &result);
    *line = 0;
    if (fd < 0)
        return result;
    result = exchange(line, fd, mail, n_bytes, deadline, &callback);
    const int error = errno;
    close(fd);
    errno = error;
    return result;
}

int worker_ask(char line[WORKER_LINE], const char *path, const worker_request *asked,
               const uint8_t *mail, size_t n_bytes, int64_t wait_ms, int64_t deadline)
{
    return worker_ask_progress(line, path, asked, mail, n_bytes, wait_ms, deadline, NULL, NULL);
}
