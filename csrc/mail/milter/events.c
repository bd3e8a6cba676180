/* events.c - collect a message as it arrives, classify it at its end, mark it.
 *
 * libmilter calls the events of one connection one after the other, and those of several
 * connections in several threads.
 *
 * Diagnostics: one line per message to syslog; "X-Spam-Status: unchecked; reason=WORD".
 * Guards against lost mail: every event is answered by "continue", and an error only makes the
 * status "unchecked".  No path leads to a rejection, a temporary failure or a discarded message. */
#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include "mail/client.h"
#include "mail/milter/events.h"
#include "mail/milter/mail.h"

/* Each header that is deleted makes Postfix read the headers from the first one on: a bound on the
 * product of both numbers, some seconds of its time. Ordinary mail has a few dozen headers and is
 * far from it. */
enum { HEADER_READS = 20 * 1000 * 1000, MIN_DELETIONS = 100 };

milter_settings settings;

typedef struct {
    mail mail;
    unsigned long flags;         /* SMFIP_* that were agreed on */
    char client[WORKER_ADDRESS]; /* of the connection, "": unknown */
} session;

/* What the last MTA agreed to: a connection that is used again for another client is not negotiated
 * again. */
static atomic_ulong last_flags;

static session *begin(SMFICTX *ctx, unsigned long flags)
{
    session *s = smfi_getpriv(ctx);
    if (!s && (s = calloc(1, sizeof *s))) {
        mail_clear(&s->mail);
        if (smfi_setpriv(ctx, s) != MI_SUCCESS) {
            free(s);
            return NULL;
        }
    }
    if (s)
        s->flags = flags;
    return s;
}

static sfsistat on_negotiate(SMFICTX *ctx, unsigned long actions, unsigned long steps,
                             unsigned long x, unsigned long y, unsigned long *want_actions,
                             unsigned long *want_steps, unsigned long *want_x,
                             unsigned long *want_y)
{
    (void)x, (void)y;
    *want_actions = actions & (settings.monitor ? 0 : SMFIF_ADDHDRS | SMFIF_CHGHDRS);
    *want_steps = steps
        & (SMFIP_NOHELO | SMFIP_NORCPT | SMFIP_NODATA | SMFIP_NOUNKNOWN | SMFIP_NR_CONN
           | SMFIP_NR_MAIL | SMFIP_NR_HDR | SMFIP_NR_EOH | SMFIP_SKIP | SMFIP_HDR_LEADSPC);
    *want_x = *want_y = 0;
    atomic_store(&last_flags, *want_steps);
    begin(ctx, *want_steps);
    return SMFIS_CONTINUE;
}

/* "Go on", said or, where that was agreed on (`flag`), not said. */
static sfsistat go_on(const session *s, unsigned long flag)
{
    return (s ? s->flags : atomic_load(&last_flags)) & flag ? SMFIS_NOREPLY : SMFIS_CONTINUE;
}

static sfsistat on_connect(SMFICTX *ctx, char *host, _SOCK_ADDR *from)
{
    (void)host;
    session *s = smfi_getpriv(ctx);
    if (!s)
        s = begin(ctx, atomic_load(&last_flags));
    if (s) {
        const void *address = !from       ? NULL
            : from->sa_family == AF_INET  ? (void *)&((struct sockaddr_in *)from)->sin_addr
            : from->sa_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)from)->sin6_addr
                                          : NULL;
        if (!address || !inet_ntop(from->sa_family, address, s->client, sizeof s->client))
            *s->client = 0;
    }
    return go_on(s, SMFIP_NR_CONN);
}

static sfsistat on_mail(SMFICTX *ctx, char **arguments)
{
    (void)arguments;
    session *s = smfi_getpriv(ctx);
    if (!s)
        s = begin(ctx, atomic_load(&last_flags));
    if (s) {
        const char *method = smfi_getsymval(ctx, "{auth_type}");
        mail_clear(&s->mail);
        if (settings.skip_authenticated && method && *method)
            mail_give_up(&s->mail, MARK_SKIPPED);
    }
    return go_on(s, SMFIP_NR_MAIL);
}

static sfsistat on_header(SMFICTX *ctx, char *name, char *value)
{
    session *s = smfi_getpriv(ctx);
    if (s)
        mail_add_header(&s->mail, name, value, (s->flags & SMFIP_HDR_LEADSPC) != 0);
    return go_on(s, SMFIP_NR_HDR);
}

static sfsistat on_end_of_headers(SMFICTX *ctx)
{
    session *s = smfi_getpriv(ctx);
    if (s)
        mail_add(&s->mail, "\r\n", 2);
    return go_on(s, SMFIP_NR_EOH);
}

static sfsistat on_body(SMFICTX *ctx, unsigned char *bytes, size_t n_bytes)
{
    session *s = smfi_getpriv(ctx);
    if (s)
        mail_add(&s->mail, bytes, n_bytes);
    return s && s->mail.reason != MAIL_CHECKED && (s->flags & SMFIP_SKIP) ? SMFIS_SKIP
                                                                          : SMFIS_CONTINUE;
}

static void send_progress(void *ctx) { (void)smfi_progress(ctx); }

/* A worker that died is replaced by another, which is asked too. */
static void ask(SMFICTX *ctx, mail_verdict *v, const session *s)
{
    const worker_request asked = {.client = *s->client ? s->client : NULL,
                                  .explain = settings.explain};
    char line[WORKER_LINE];
    const int64_t wait_ms = (int64_t)settings.deadline * 1000, deadline = now_ms() + wait_ms;
    int result = WORKER_CLOSED;
    for (int attempt = 0; attempt < 2 && result == WORKER_CLOSED; attempt++)
        result = worker_ask_progress(line, settings.socket, &asked, s->mail.bytes, s->mail.n_bytes,
                                     wait_ms, deadline, send_progress, ctx);
    if (result == WORKER_ANSWERED && !mark_read(v, (const uint8_t *)line, strlen(line)))
        return;
    if (result == WORKER_ABSENT || result == WORKER_BROKEN)
        syslog(LOG_ERR, "%s: %m", settings.socket);
    memset(v, 0, sizeof *v);
    v->answer = MARK_UNCHECKED;
    v->reason = result == WORKER_TIMEOUT ? MARK_TIMEOUT
        : result == WORKER_CLOSED        ? MARK_CRASHED
                                         : MARK_WORKER;
}

static void classify(SMFICTX *ctx, session *s, mail_verdict *v)
{
    memset(v, 0, sizeof *v);
    v->answer = MARK_UNCHECKED;
    v->reason = s ? s->mail.reason : MARK_MEMORY;
    if (s && v->reason == MAIL_CHECKED)
        ask(ctx, v, s);
}

/* Delete the X-Spam headers, those of this program's names first; of one name the last first, so
 * that the indices of the others stay. Returns how many are left. */
static uint64_t remove_forged(SMFICTX *ctx, const mail *m)
{
    uint64_t left = m->n_left, n_max = HEADER_READS / (m->n_headers + 1);
    n_max = n_max < MIN_DELETIONS ? MIN_DELETIONS : n_max;
    for (int ours = 1; ours >= 0; ours--)
        for (size_t i = 0; i < m->n_own; i++)
            for (uint32_t n = m->own[i].is_ours == ours ? m->own[i].n : 0; n; n--)
                if (n_max) {
                    n_max--;
                    (void)smfi_chgheader(ctx, m->own[i].name, (int)n, NULL);
                } else
                    left++;
    return left;
}

/* Insert the new headers above all others, in their order. If the MTA keeps the space after the
 * colon, the value begins with it. */
static void insert_headers(SMFICTX *ctx, const mail_verdict *v, unsigned long flags)
{
    char text[MARK_BYTES], *end = text + mark_headers(text, v);
    while (end > text) {
        char *line = end - 1; /* its newline */
        *line = 0;
        while (line > text && line[-1] != '\n')
            line--;
        char *value = strchr(line, ':');
        *value++ = 0;
        (void)smfi_insheader(ctx, 0, line, flags & SMFIP_HDR_LEADSPC ? value : value + 1);
        end = line;
    }
}

static void report(SMFICTX *ctx, const mail_verdict *v, uint64_t n_forged, uint64_t n_left, long ms)
{
    static const char *const answers[] = {"yes", "no", "unsure"};
    const char *id = smfi_getsymval(ctx, "i");
    id = id ? id : "-";
    if (v->answer == MARK_UNCHECKED)
        syslog(v->reason == MARK_SKIPPED ? LOG_INFO : LOG_WARNING,
               "%.64s: unchecked reason=%s removed=%llu ms=%ld", id, mark_word(v->reason),
               (unsigned long long)(n_forged - n_left), ms);
    else
        syslog(LOG_INFO, "%.64s: %s score=%s required=%s model=%s rule=%s removed=%llu ms=%ld", id,
               answers[v->answer], v->score, v->required, v->model, *v->rule ? v->rule : "-",
               (unsigned long long)(n_forged - n_left), ms);
    if (n_left && !settings.monitor)
        syslog(LOG_WARNING, "%.64s: %llu headers X-Spam-* could not be removed: there are too many",
               id, (unsigned long long)n_left);
}

static sfsistat on_end(SMFICTX *ctx)
{
    session *s = smfi_getpriv(ctx);
    const int64_t began = now_ms();
    mail_verdict v;
    uint64_t n_left = 0, n_forged = s ? s->mail.n_forged : 0;
    classify(ctx, s, &v);
    const long ms = (long)(now_ms() - began);
    if (settings.monitor)
        n_left = n_forged;
    else {
        if (s)
            n_left = remove_forged(ctx, &s->mail);
        insert_headers(ctx, &v, s ? s->flags : atomic_load(&last_flags));
    }
    report(ctx, &v, n_forged, n_left, ms);
    if (s)
        mail_clear(&s->mail);
    return SMFIS_CONTINUE;
}

static sfsistat on_abort(SMFICTX *ctx)
{
    session *s = smfi_getpriv(ctx);
    if (s)
        mail_clear(&s->mail);
    return SMFIS_CONTINUE;
}

static sfsistat on_close(SMFICTX *ctx)
{
    session *s = smfi_getpriv(ctx);
    if (s) {
        mail_clear(&s->mail);
        free(s);
        (void)smfi_setpriv(ctx, NULL);
    }
    return SMFIS_CONTINUE;
}

const struct smfiDesc milter_events = {
    .xxfi_name = "mail-milter",
    .xxfi_version = SMFI_VERSION,
    .xxfi_flags = SMFIF_ADDHDRS | SMFIF_CHGHDRS,
    .xxfi_connect = on_connect,
    .xxfi_envfrom = on_mail,
    .xxfi_header = on_header,
    .xxfi_eoh = on_end_of_headers,
    .xxfi_body = on_body,
    .xxfi_eom = on_end,
    .xxfi_abort = on_abort,
    .xxfi_close = on_close,
    .xxfi_negotiate = on_negotiate,
};
