/* attempts.c - count the failed attempts at a message, so that it is delivered in the end.
 *
 * DIR/QUEUEID-HASH holds two digits, counts of at most 9: classifications that began and did not
 * return here, and deliveries that sendmail refused for good.  The hash covers sender and
 * recipients, because Postfix starts one filter for each 50 recipients of a message, all at once.
 * The file is removed when the message is delivered.  Files of messages that left the queue
 * otherwise (a queue keeps a message for 5 days) are removed after 14 days, at most once an hour.
 *
 * Diagnostics: `begun` and `refused` of the log line.  After any error nothing is counted.
 * Guards against a message that kills the classifier each time, and against forged counts, which
 * would let any message pass unchecked: a directory that other users can write is not used. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "mail/filter/filter.h"

#define SWEPT ".swept"
enum { ID_BYTES = 64, KEEP_SECONDS = 14 * 86400, SWEEP_SECONDS = 3600, SWEEP_ENTRIES = 10000 };

/* FNV-1a (Fowler, Noll, Vo 1991), 64 bits, of a string and its final zero. */
static uint64_t hash(uint64_t h, const char *s)
{
    do
        h = (h ^ (uint8_t)*s) * 0x100000001b3;
    while (*s++);
    return h;
}

static void sweep(int dir)
{
    struct stat st;
    const time_t now = time(NULL);
    if (fstatat(dir, SWEPT, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtime <= now
        && now - st.st_mtime < SWEEP_SECONDS)
        return;
    const int mark =
        openat(dir, SWEPT, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    /* without this file the sweep would be repeated for every message */
    if (mark < 0 || futimens(mark, NULL)) {
        if (mark >= 0)
            close(mark);
        return;
    }
    close(mark);
    const int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        if (fd >= 0)
            close(fd);
        return;
    }
    struct dirent *e;
    for (int n = 0; n < SWEEP_ENTRIES && (e = readdir(entries)); n++)
        if (e->d_name[0] != '.' && fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0
            && S_ISREG(st.st_mode) && now - st.st_mtime > KEEP_SECONDS)
            unlinkat(dir, e->d_name, 0);
    closedir(entries);
}

/* The directory, if it belongs to this user or root and is not writable for all; or -1. */
static int open_state(const char *path)
{
    struct stat st;
    mkdir(path, 0700); /* or it is there */
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (!fstat(fd, &st) && (st.st_uid == geteuid() || st.st_uid == 0) && !(st.st_mode & S_IWOTH))
        return fd;
    close(fd);
    log_line("%s: belongs to another user, or is writable for all: no attempts are counted", path);
    return -1;
}

void attempts_open(attempts *a, const options *o)
{
    char digits[2];
    uint64_t h = hash(0xcbf29ce484222325, o->sender ? o->sender : "");
    *a = (attempts){.fd = -1};
    if (!o->state || !o->queue_id || strlen(o->queue_id) > ID_BYTES)
        return;
    if ((a->fd = open_state(o->state)) < 0)
        return;
    for (int i = 0; i < o->n_recipients; i++)
        h = hash(h, o->recipients[i]);
    snprintf(a->name, sizeof a->name, "%s-%016llx", o->queue_id, (unsigned long long)h);
    sweep(a->fd);
    const int fd = openat(a->fd, a->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    if (read(fd, digits, sizeof digits) == sizeof digits && digits[0] >= '0' && digits[0] <= '9'
        && digits[1] >= '0' && digits[1] <= '9')
        a->begun = digits[0] - '0', a->refused = digits[1] - '0';
    close(fd);
}

void attempts_write(attempts *a, int begun, int refused)
{
    if (a->fd < 0)
        return;
    if (!begun && !refused) {
        attempts_done(a);
        return;
    }
    const char digits[2] = {(char)('0' + (begun > ATTEMPTS_MAX ? ATTEMPTS_MAX : begun)),
                            (char)('0' + (refused > ATTEMPTS_MAX ? ATTEMPTS_MAX : refused))};
    const int fd =
        openat(a->fd, a->name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0)
        return;
    (void)!pwrite(fd, digits, sizeof digits, 0);
    close(fd);
}

void attempts_done(attempts *a)
{
    if (a->fd >= 0)
        unlinkat(a->fd, a->name, 0);
}
