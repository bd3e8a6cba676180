/* deliver.c - put the message back into the queue: sendmail(1) with the whole file as its stdin.
 *
 * -G: a relayed message, no header is rewritten; -i: a single dot is no end; never -t: the
 * recipients are those of the envelope.  sendmail ends with 0 after postdrop has synced the
 * message; only then is it delivered.
 *
 * Diagnostics: an error text, `refused`, and one line of the log with sendmail's output, which may
 * quote addresses.
 * Guards against a second delivery after Postfix stopped, and against recipients or senders that
 * look like options ("--"). */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "mail/filter/filter.h"

enum {
    OUTPUT_BYTES = 2048,
    LOGGED_BYTES = 400,
    WHY_BYTES = 100,
    N_FIXED = 8,
    ENV_BYTES = 4200,
    N_ENV = 6
};

char *const *child_environment(int for_sendmail)
{
    /* Where a second instance of Postfix has its configuration, and what else pipe(8) exports:
     * export_environment, postconf(5). */
    static const char *const names[] = {"TZ", "LANG", "MAIL_CONFIG"};
    static char text[sizeof names / sizeof *names][ENV_BYTES];
    static char *env[N_ENV + 1];
    int n = 0;
    env[n++] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    for (int i = 0; i < (for_sendmail ? 3 : 0); i++) {
        const char *value = getenv(names[i]);
        if (value && (size_t)snprintf(text[i], ENV_BYTES, "%s=%s", names[i], value) < ENV_BYTES)
            env[n++] = text[i];
    }
    env[n] = NULL;
    return env;
}

/* Whether pipe(8) has gone: it holds the other end of stdout until this program ends.  If Postfix
 * was stopped meanwhile (`postfix stop`), the message is still in the queue and will come again:
 * delivering it now would deliver it twice. */
static int reader_is_gone(void)
{
    struct stat st;
    struct pollfd p = {1, 0, 0};
    return !fstat(1, &st) && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) && poll(&p, 1, 0) == 1
        && p.revents & (POLLERR | POLLHUP);
}

const char *deliver(const options *o, const spool *mail, const char *id, int *refused)
{
    static char output[OUTPUT_BYTES], why[WHY_BYTES];
    char line[LOGGED_BYTES];
    child_end end;
    const char **argv = malloc(sizeof *argv * (size_t)(N_FIXED + o->n_recipients));
    int n = 0;
    *refused = 0;
    if (reader_is_gone()) {
        log_line("%s: stdout has no reader any more: not sent", id);
        free(argv);
        return "stdout has no reader any more";
    }
    if (!argv)
        return strerror(ENOMEM);
    argv[n++] = o->sendmail, argv[n++] = "-G", argv[n++] = "-i", argv[n++] = "-f",
    argv[n++] = o->sender, argv[n++] = "--";
    for (int i = 0; i < o->n_recipients; i++)
        argv[n++] = o->recipients[i];
    argv[n] = NULL;
    child_run(&end,
              &(child){.argv = (char *const *)argv,
                       .env = child_environment(1),
                       .in = mail->fd,
                       .errors = 1,
                       .deadline = now_ms() + o->send_ms,
                       .out = output,
                       .out_bytes = sizeof output});
    free(argv);
    const int delivered = !end.failed && end.code == 0; /* late or not */
    if (!delivered || end.n_out) {
        log_clean(line, sizeof line, output, end.n_out);
        log_line("%s: sendmail status=%d signal=%d late=%d errno=%d said=%s", id, end.code,
                 end.signal, end.late, end.failed, line);
    }
    *refused = !end.failed && !end.late && end.code > 0 && end.code != DEFERRED;
    if (end.failed)
        snprintf(why, sizeof why, "sendmail cannot be started: %s", strerror(end.failed));
    return delivered ? NULL
        : end.failed ? why
        : end.late   ? "sendmail took too long"
                     : "sendmail failed";
}
