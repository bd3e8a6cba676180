/* spool.c - write a message to a private file: completely, or not at all.
 *
 * The file has no name (O_TMPFILE), or one only until it is open (O_EXCL, then unlink), so no end
 * of this process leaves a file behind.  Others get a read-only descriptor.  The file is not
 * synced: Postfix keeps its copy until this program exits with 0.
 *
 * Diagnostics: -1 and errno; EFBIG beyond the limit, ETIMEDOUT after the deadline.
 * Guards against other users' files and FIFOs in the directory, truncated writes, and a sender that
 * stops sending. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "mail/filter/filter.h"

enum { CHUNK_BYTES = 1 << 16, PIPE_BYTES = 4096, PATH_BYTES = 4096 };

/* A new file in the directory, for writing, and the same for reading in *read_only; -1: errno. */
static int private_file(int *read_only, const char *directory)
{
    char path[PATH_BYTES];
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if ((*read_only = open(path, O_RDONLY | O_CLOEXEC)) >= 0)
            return fd;
        close(fd); /* without /proc: by a name */
    }
    if ((size_t)snprintf(path, sizeof path, "%s/mail-filter.XXXXXX", directory) >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if ((fd = mkostemp(path, O_CLOEXEC)) < 0) /* O_EXCL, 0600 */
        return -1;
    /* O_NONBLOCK: another user may have put a FIFO there */
    *read_only = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const int error = errno;
    struct stat a, b;
    const int same = *read_only >= 0 && !fstat(fd, &a) && !fstat(*read_only, &b)
        && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
    if (!unlink(path) && same)
        return fd;
    close(fd);
    if (*read_only >= 0)
        close(*read_only);
    errno = *read_only < 0 ? error : EIO;
    return -1;
}

/* Waits until fd is ready for `events`.  0 or -1: errno. */
static int wait_for(int fd, short events, int64_t deadline)
{
    struct pollfd p = {fd, events, 0};
    for (;;) {
        const int64_t left = deadline - now_ms();
        if (left <= 0) {
            errno = ETIMEDOUT;
            return -1;
        }
        const int n = poll(&p, 1, left > 60000 ? 60000 : (int)left);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -1;
    }
}

int write_whole(int fd, const uint8_t *data, uint64_t n_bytes, int64_t deadline)
{
    while (n_bytes) {
        /* A ready pipe accepts so many bytes without waiting: pipe(7). */
        const ssize_t n = wait_for(fd, POLLOUT, deadline)
            ? -1
            : write(fd, data, n_bytes < PIPE_BYTES ? n_bytes : PIPE_BYTES);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -1;
        if (n > 0)
            data += n, n_bytes -= (uint64_t)n;
    }
    return 0;
}

static int write_file(int fd, const uint8_t *data, uint64_t n_bytes)
{
    while (n_bytes) {
        const ssize_t n = write(fd, data, n_bytes < 1 << 30 ? n_bytes : 1 << 30);
        if (n == 0)
            errno = ENOSPC;
        if (n == 0 || (n < 0 && errno != EINTR))
            return -1;
        if (n > 0)
            data += n, n_bytes -= (uint64_t)n;
    }
    return 0;
}

/* Closes the writing descriptor and keeps the reading one, if the file has its full length. */
static int sealed(spool *s, int fd, int read_only, uint64_t n_bytes, int result)
{
    struct stat st;
    int error = errno;
    if (close(fd) && !result)
        result = -1, error = errno;
    if (!result && (fstat(read_only, &st) || (uint64_t)st.st_size != n_bytes))
        result = -1, error = EIO;
    if (result)
        close(read_only);
    s->fd = result ? -1 : read_only;
    s->n_bytes = n_bytes;
    errno = error;
    return result;
}

int spool_mail(spool *s, int in, const char *directory, uint64_t limit, int64_t deadline)
{
    static uint8_t chunk[CHUNK_BYTES];
    uint64_t n_bytes = 0;
    int read_only, result = 0;
    const int fd = private_file(&read_only, directory);
    s->fd = -1, s->data = NULL;
    if (fd < 0)
        return -1;
    for (;;) {
        const ssize_t n = wait_for(in, POLLIN, deadline) ? -1 : read(in, chunk, sizeof chunk);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n == 0)
            break;
        if (n > 0 && (uint64_t)n > limit - n_bytes)
            errno = EFBIG;
        if (n < 0 || (uint64_t)n > limit - n_bytes || write_file(fd, chunk, (uint64_t)n)) {
            result = -1;
            break;
        }
        n_bytes += (uint64_t)n;
    }
    if (sealed(s, fd, read_only, n_bytes, result))
        return -1;
    s->data = (const uint8_t *)"";
    if (n_bytes) {
        s->data = mmap(NULL, n_bytes, PROT_READ, MAP_PRIVATE, s->fd, 0);
        if (s->data == MAP_FAILED)
            return -1;
    }
    return 0;
}

int spool_parts(spool *s, const char *directory, const uint8_t *head, uint64_t head_bytes,
                const uint8_t *rest, uint64_t rest_bytes)
{
    int read_only;
    const int fd = private_file(&read_only, directory);
    s->fd = -1, s->data = NULL;
    if (fd < 0)
        return -1;
    const int result = write_file(fd, head, head_bytes) ? -1 : write_file(fd, rest, rest_bytes);
    return sealed(s, fd, read_only, head_bytes + rest_bytes, result);
}
