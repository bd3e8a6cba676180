/* classify.c - get a verdict on a message: from the worker, or from classify in a process.
 *
 * A worker's answer is final, also if it is "error WORD"; "error worker" is not, since it tells
 * about the worker alone.  In all other cases classify is run in the time that is left: the worker
 * gets half of it.
 *
 * Diagnostics: `worker` and `by` of the log line, and a reason of MARK_UNCHECKED.
 * Guards against output that is no verdict (a crash, a library's message, a text that a message
 * provoked): a verdict is one whole line that mark_read accepts, and from a process the exit status
 * that belongs to it. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "mail/filter/filter.h"

enum { N_ARGS = 48, FILE_BYTES = 1 << 30 };

static void unchecked(mail_verdict *v, int32_t reason)
{
    *v = (mail_verdict){.answer = MARK_UNCHECKED, .reason = reason};
}

/* Whether the worker's answer is final. */
static int ask_worker(mail_verdict *v, verdict_source *how, const options *o, const spool *mail,
                      int64_t deadline)
{
    static const char *const words[] = {"answered",       "absent",  "closed",
                                        "protocol-error", "timeout", "broken"};
    char line[WORKER_LINE];
    const int64_t half = now_ms() + (deadline - now_ms()) / 2;
    const worker_request asked = {.user = *o->user ? o->user : NULL,
                                  .client = *o->client ? o->client : NULL,
                                  .explain = o->explain};
    const int result = worker_ask(line, o->socket, &asked, mail->data, mail->n_bytes,
                                  WORKER_WAIT_MS, o->worker_only ? deadline : half);
    how->worker = words[result];
    unchecked(v, result == WORKER_TIMEOUT ? MARK_TIMEOUT : MARK_WORKER);
    if (result != WORKER_ANSWERED)
        return 0;
    if (mark_read(v, (const uint8_t *)line, strlen(line))) {
        how->worker = words[WORKER_PROTOCOL_ERROR];
        unchecked(v, MARK_WORKER);
        return 0;
    }
    how->by = "worker";
    return v->answer != MARK_UNCHECKED || v->reason != MARK_WORKER;
}

/* The reason for MARK_UNCHECKED from the end of a process that printed no verdict. */
static int32_t reason_of(const child_end *end)
{
    if (end->late || end->signal == SIGXCPU)
        return MARK_TIMEOUT;
    /* Of classify --help. Only the question or the model can cause them: the message is here and
     * is not empty. */
    switch (end->code) {
    case 64:
    case 65:
    case 66:
    case 69:
    case 74: return MARK_MODEL;
    case 75: return MARK_MEMORY;
    default: return MARK_CRASHED;
    }
}

static void ask_process(mail_verdict *v, verdict_source *how, const options *o, const spool *mail,
                        int64_t deadline)
{
    char out[WORKER_LINE];
    const char *argv[N_ARGS] = {o->classify, "--long", "--mail", "-j",
                                o->threads ? o->threads : "1"};
    int n = 5;
    if (o->cache)
        argv[n++] = "--cache", argv[n++] = o->cache;
    else
        argv[n++] = "--no-cache";
    if (o->calibration)
        argv[n++] = "--calibration", argv[n++] = o->calibration;
    if (o->question)
        argv[n++] = "-q", argv[n++] = o->question;
    if (o->model)
        argv[n++] = "-m", argv[n++] = o->model;
    if (o->rules)
        argv[n++] = "--rules", argv[n++] = o->rules;
    if (o->rules && *o->client)
        argv[n++] = "--client", argv[n++] = o->client;
    for (int i = 0; i < o->n_authserv_ids; i++)
        argv[n++] = "--authserv-id", argv[n++] = o->authserv_ids[i];
    if (o->learned_in && *o->user)
        argv[n++] = "--learned-in", argv[n++] = o->learned_in, argv[n++] = "--learned-by",
        argv[n++] = o->user;
    if (o->explain)
        argv[n++] = "--explain-header";
    const int64_t left = deadline - now_ms();
    const child c = {.argv = (char *const *)argv,
                     .env = child_environment(0),
                     .in = mail->fd,
                     .memory_bytes = o->memory_bytes,
                     .cpu_seconds = (uint64_t)(left > 0 ? left : 0) / 1000
                             * (o->threads ? strtoul(o->threads, NULL, 10) : 1)
                         + 2,
                     .file_bytes = FILE_BYTES,
                     .deadline = deadline,
                     .out = out,
                     .out_bytes = sizeof out};
    how->by = "process";
    how->ran = 1;
    if (o->classify)
        child_run(&how->end, &c);
    const child_end *end = &how->end;
    const int whole = end->n_out > 1 && !end->more && out[end->n_out - 1] == '\n';
    if (!o->classify || end->failed)
        unchecked(v, o->classify && end->failed == ENOMEM ? MARK_MEMORY : MARK_CRASHED);
    else if (end->late || !whole || mark_read(v, (const uint8_t *)out, end->n_out - 1)
             || end->code < 0
             || (v->answer != MARK_UNCHECKED
                 && end->code != v->answer)) /* 0 yes, 1 no, 2 unsure: MARK_YES ... */
        unchecked(v, reason_of(end));
}

void classify(mail_verdict *v, verdict_source *how, const options *o, const spool *mail)
{
    const int64_t deadline = now_ms() + o->deadline_ms;
    *how = (verdict_source){.by = "none", .worker = "-"};
    unchecked(v, MARK_WORKER);
    if (o->socket && ask_worker(v, how, o, mail, deadline))
        return;
    if (!o->worker_only)
        ask_process(v, how, o, mail, deadline);
}
