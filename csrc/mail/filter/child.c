/* child.c - run a program under limits and a deadline, and leave none of its processes.
 *
 * The child leads a process group, which is killed when the child has ended or must end.  The
 * kernel kills the child if this process dies.  SIGCHLD is blocked except while waiting (ppoll), so
 * no end of a child is missed, and none is polled for.  RLIMIT_NPROC is not set: it counts all
 * processes of the user, also those of other filters.
 *
 * Diagnostics: child_end.
 * Guards against a program that hangs, forks, fills memory, the disk or the output, or ignores
 * SIGTERM. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "mail/filter/filter.h"

/* LOOK_MS: a wake-up that was lost must not cost the whole deadline */
enum { REAP_MS = 5000, LOOK_MS = 1000 };

/* Sets a limit, or keeps the present one if that is lower. */
static void limit(int resource, uint64_t soft, uint64_t hard)
{
    struct rlimit now, l = {(rlim_t)soft, (rlim_t)hard};
    if (getrlimit(resource, &now) == 0) {
        /* RLIM_INFINITY is the greatest */
        l.rlim_max = now.rlim_max < l.rlim_max ? now.rlim_max : l.rlim_max;
        l.rlim_cur = now.rlim_cur < l.rlim_cur ? now.rlim_cur : l.rlim_cur;
    }
    if (setrlimit(resource, &l))
        _exit(DEFERRED);
}

/* The child's side of fork, up to exec; errno goes to `failed` where that fails. */
static void become(const child *c, int out, int failed, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* which died before that was set */
        _exit(DEFERRED);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0 || lseek(c->in, 0, SEEK_SET) || dup2(c->in, 0) < 0 || dup2(out, 1) < 0
        || dup2(c->errors ? out : nowhere, 2) < 0)
        goto fail;
    if (c->memory_bytes) {
        limit(RLIMIT_AS, c->memory_bytes, c->memory_bytes);
        limit(RLIMIT_CPU, c->cpu_seconds, c->cpu_seconds + 1); /* SIGXCPU, then SIGKILL */
        limit(RLIMIT_FSIZE, c->file_bytes, c->file_bytes);
    }
    execve(c->argv[0], c->argv, c->env);
fail:
    (void)!write(failed, &(int){errno}, sizeof(int));
    _exit(DEFERRED);
}

/* Waits for the child `ms` at most, or for something to read on fd (-1: nothing). */
static void wait_some(int fd, int64_t ms)
{
    struct pollfd p = {fd, POLLIN, 0};
    const struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    sigset_t none;
    sigemptyset(&none);
    ppoll(&p, 1, &t, &none);
}

enum { AT_END, READ_SOME, NOTHING_YET };

/* Reads some of the output that is there. */
static int drain(child_end *end, const child *c, int fd)
{
    char rest[4096];
    const int full = end->n_out == c->out_bytes;
    const ssize_t n = full ? read(fd, rest, sizeof rest)
                           : read(fd, c->out + end->n_out, c->out_bytes - end->n_out);
    if (n > 0 && full)
        end->more = 1;
    else if (n > 0)
        end->n_out += (size_t)n;
    return n > 0 ? READ_SOME : n < 0 && (errno == EAGAIN || errno == EINTR) ? NOTHING_YET : AT_END;
}

/* Reads and waits until the child has ended. It is not reaped: its PID must still be its own when
 * its group is killed. 0: the deadline has passed. */
static int attend(child_end *end, const child *c, pid_t pid, int out)
{
    int open = 1;
    for (;;) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0
            && info.si_pid == pid) {
            while (!end->more && drain(end, c, out) == READ_SOME)
                ;
            return 1;
        }
        const int64_t left = c->deadline - now_ms();
        if (left <= 0) {
            end->late = 1;
            return 0;
        }
        wait_some(open ? out : -1, left < LOOK_MS ? left : LOOK_MS);
        if (open)
            open = drain(end, c, out) != AT_END;
    }
}

void child_run(child_end *end, const child *c)
{
    int out[2] = {-1, -1}, failed[2] = {-1, -1}, status = 0;
    *end = (child_end){.code = -1};
    if (pipe2(out, O_CLOEXEC) || fcntl(out[0], F_SETFL, O_NONBLOCK)
        || pipe2(failed, O_CLOEXEC | O_NONBLOCK)) {
        end->failed = errno;
        goto close;
    }
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become(c, out[1], failed[1], parent);
    if (pid < 0) {
        end->failed = errno;
        goto close;
    }
    setpgid(pid, pid); /* in parent and child: either may be first */
    close(out[1]), close(failed[1]);
    out[1] = failed[1] = -1;
    /* it may hang in the kernel */
    const int64_t until = attend(end, c, pid, out[0]) ? INT64_MAX : now_ms() + REAP_MS;
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    pid_t done;
    while ((done = waitpid(pid, &status, WNOHANG)) != pid && (done == 0 || errno == EINTR)
           && now_ms() < until)
        wait_some(-1, LOOK_MS);
    const int ended = done == pid;
    if (read(failed[0], &end->failed, sizeof end->failed) != sizeof end->failed)
        end->failed = 0;
    if (ended && WIFEXITED(status))
        end->code = WEXITSTATUS(status);
    else if (ended && WIFSIGNALED(status))
        end->signal = WTERMSIG(status);
close:
    for (int i = 0; i < 2; i++) {
        if (out[i] >= 0)
            close(out[i]);
        if (failed[i] >= 0)
            close(failed[i]);
    }
}
