/* main.c - mail-filter, the program that Postfix's pipe(8) starts for each message.
 *
 * Spool stdin, get a verdict (classify.c), mark the message (mail/marking.c), deliver it
 * (deliver.c).
 *
 * Diagnostics: exit status 0 or 75, nothing else.  pipe(8) keeps a message in the queue if the
 * command exits with 75 or is killed by a signal, and bounces it for nearly any other status or if
 * it runs too long (global/pipe_command.c).  So the status is 75 from the first instruction on, and
 * 0 only after sendmail ended with 0.  One line on stderr gives the reason; log.c has one line per
 * message.
 * limits.c comes first, as the C library ends a program with 127 if its limits are too small.
 *
 * Guards against lost and bounced messages.  SIGALRM with its default action ends whatever hangs.
 * C, without threads and without libraries loaded at run time: an interpreter that cannot start
 * exits with 1. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "mail/filter/filter.h"

enum { START_SECONDS = 60, SPARE_SECONDS = 30, LAST_INHERITED = 1024 };

static void ignore(int number) { (void)number; }

/* Resets all that was inherited: signals, limits, umask, descriptors. */
static int prepare(void)
{
    sigset_t chld;
    for (int number = 1; number < NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP)
            signal(number, SIG_DFL); /* fails for those that glibc keeps for itself */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGCHLD, ignore); /* so that one wakes ppoll in child.c, and nothing else */
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_SETMASK, &chld, NULL);
    alarm(START_SECONDS);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    umask(077);
    /* Closed standard files are opened in the wrong direction: reading or writing them must fail.
     */
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            return -1;
#ifdef SYS_close_range /* Linux 5.9 */
    if (syscall(SYS_close_range, 3u, ~0u, 0u) == 0)
        return 0;
#endif
    for (int fd = 3; fd < LAST_INHERITED; fd++)
        close(fd);
    return 0;
}

/* Prints the one line with the reason; returns the status. */
__attribute__((format(printf, 1, 2))) static int deferred(const char *format, ...)
{
    char line[512] = "4.3.0 mail-filter: ";
    va_list args;
    va_start(args, format);
    vsnprintf(line + strlen(line), sizeof line - strlen(line) - 1, format, args);
    va_end(args);
    strcat(line, "\n");
    (void)!write(2, line, strlen(line));
    return DEFERRED;
}

static int is_failure(const mail_verdict *v)
{
    return v->answer == MARK_UNCHECKED && v->reason != MARK_SIZE && v->reason != MARK_EMPTY
        && v->reason != MARK_SKIPPED && v->reason != MARK_ATTEMPTS;
}

/* Delivers the message as --deliver says, with `head` on top ("": only without forged headers;
 * NULL: as it came). NULL: delivered, else the error. */
static const char *hand_over(const options *o, const spool *mail, const char *head, const char *id,
                             int *refused)
{
    mail_marking m = {0};
    spool marked = *mail;
    uint8_t *top = NULL;
    const char *why = NULL;
    *refused = 0;
    if (head) {
        mark_mail(&m, NULL, mail->data, mail->n_bytes, (const uint8_t *)head, strlen(head));
        if (!(top = malloc(m.n_out + 1)))
            return strerror(ENOMEM);
        mark_mail(&m, top, mail->data, mail->n_bytes, (const uint8_t *)head, strlen(head));
    }
    const uint8_t *rest = mail->data + m.n_read;
    const uint64_t rest_bytes = mail->n_bytes - m.n_read;
    if (o->deliver == DELIVER_STDOUT) {
        const int64_t until = now_ms() + o->send_ms;
        if (write_whole(1, top, m.n_out, until) || write_whole(1, rest, rest_bytes, until)
            || close(1))
            why = strerror(errno);
    } else if (head && spool_parts(&marked, o->spool, top, m.n_out, rest, rest_bytes)) {
        why = strerror(errno);
    } else {
        why = deliver(o, &marked, id, refused);
        if (head)
            close(marked.fd);
    }
    free(top);
    return why;
}

static void log_mail(const options *o, const char *id, const spool *mail, const mail_verdict *v,
                     const verdict_source *how, const attempts *a, int64_t began,
                     const char *delivery)
{
    static const char *const answers[] = {"yes", "no", "unsure", "unchecked"};
    static const char *const hows[] = {"headers", "unchanged", "nothing", "stdout"};
    char process[32] = "-";
    if (how->ran && how->end.failed)
        snprintf(process, sizeof process, "errno%d", how->end.failed);
    else if (how->ran)
        snprintf(process, sizeof process, how->end.code >= 0 ? "%d" : "signal%d",
                 how->end.code >= 0 ? how->end.code : how->end.signal);
    log_line(
        "%s: answer=%s score=%s required=%s model=%s rule=%s reason=%s by=%s worker=%s process=%s ms=%lld bytes=%llu "
        "begun=%d refused=%d deliver=%s %s",
        id, answers[v->answer], *v->score ? v->score : "-", *v->required ? v->required : "-",
        *v->model ? v->model : "-", *v->rule ? v->rule : "-",
        v->answer == MARK_UNCHECKED ? mark_word(v->reason) : "-", how->by, how->worker, process,
        (long long)(now_ms() - began), (unsigned long long)mail->n_bytes, a->begun, a->refused,
        hows[o->deliver], delivery);
}

/* Gets the verdict, or the reason why classify is not asked. */
static void decide(mail_verdict *v, verdict_source *how, const options *o, const spool *mail,
                   attempts *a)
{
    mail_marking m;
    *how = (verdict_source){.by = "none", .worker = "-"};
    *v = (mail_verdict){.answer = MARK_UNCHECKED, .reason = MARK_EMPTY};
    if (o->trust_earlier)
        mark_mail(&m, NULL, mail->data, mail->n_bytes, NULL, 0);
    if (!mail->n_bytes) {
        return;
    } else if (o->trust_earlier && m.n_status) {
        v->reason = MARK_SKIPPED;
    } else if (mail->n_bytes > o->max_bytes) {
        v->reason = MARK_SIZE;
    } else if (a->begun >= ATTEMPTS_BEFORE_PASSING) {
        v->reason = MARK_ATTEMPTS;
    } else {
        attempts_write(a, a->begun + 1, a->refused);
        classify(v, how, o, mail);
        if (!o->defer || !is_failure(v)) /* a deferral that this program decides counts, too */
            attempts_write(a, a->begun, a->refused);
    }
}

static int filter(const options *o)
{
    const int64_t began = now_ms();
    const char *id = o->queue_id ? o->queue_id : "-";
    char head[MARK_BYTES];
    mail_verdict v;
    attempts a;
    verdict_source how;
    spool mail;
    int refused = 0;
    if (spool_mail(&mail, 0, o->spool, o->spool_bytes, began + o->read_ms))
        return deferred("%s: the message cannot be spooled: %s", o->spool, strerror(errno));
    attempts_open(&a, o);
    decide(&v, &how, o, &mail, &a);
    if (o->defer && is_failure(&v)) {
        log_mail(o, id, &mail, &v, &how, &a, began, "deferred");
        return deferred("no verdict: %s", mark_word(v.reason));
    }
    if (o->deliver == DELIVER_NOTHING) {
        attempts_done(&a);
        log_mail(o, id, &mail, &v, &how, &a, began, "done");
        return DELIVERED;
    }
    mark_headers(head, &v);
    const int as_it_is =
        o->deliver == DELIVER_UNCHANGED || (v.answer == MARK_UNCHECKED && v.reason == MARK_SKIPPED);
    const char *delivery = "sent";
    const char *why = hand_over(o, &mail, as_it_is ? NULL : head, id, &refused);
    if (refused && !as_it_is
        && (a.begun >= ATTEMPTS_BEFORE_PASSING || a.refused >= ATTEMPTS_BEFORE_PASSING)) {
        delivery = "sent-bare"; /* with the new headers it may be too large */
        why = hand_over(o, &mail, "", id, &refused);
    }
    if (!why)
        attempts_done(&a);
    else if (refused)
        attempts_write(&a, a.begun, a.refused + 1);
    log_mail(o, id, &mail, &v, &how, &a, began, why ? "deferred" : delivery);
    return why ? deferred("the message cannot be delivered: %s", why) : DELIVERED;
}

int main(int argc, char **argv)
{
    options o;
    char why[128];
    limits_check(); /* again, where the program began there */
    if (prepare())
        return DEFERRED;
    switch (options_read(&o, argc, argv, why, sizeof why)) {
    case OPTIONS_SHOWN: return DELIVERED;
    case OPTIONS_WRONG: return deferred("%s", why);
    }
    alarm((unsigned)((o.read_ms + o.deadline_ms + 2 * o.send_ms) / 1000) + SPARE_SECONDS);
    log_open(o.log);
    const int status = filter(&o);
    log_close();
    _exit(status);
}
