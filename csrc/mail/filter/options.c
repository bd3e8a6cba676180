/* options.c - what the command line says, and --help, which is the manual. */
#define _GNU_SOURCE
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "mail/filter/filter.h"

static const char HELP[] =
    "Usage: mail-filter [OPTIONS] -f SENDER -- RECIPIENT... <mail\n"
    "       mail-filter [OPTIONS] --deliver nothing|stdout <mail\n"
    "\n"
    "  Ask classify about a mail, mark it, and put it back into Postfix's queue.\n"
    "\n"
    "  This is what pipe(8) starts. It reads the mail to its end into a private file, has it judged, takes every\n"
    "  X-Spam-* header out of its top, puts its own there, and gives it to sendmail -G -i. Bodies, parts and other\n"
    "  headers keep their bytes. Without a verdict in time the mail goes through all the same, and says why:\n"
    "\n"
    "    X-Spam-Flag: YES                                   (NO also where unsure)\n"
    "    X-Spam-Score: 0.9656                               (probability of spam)\n"
    "    X-Spam-Status: Yes, score=0.9656 required=0.8681 model=3f9a0c1b2d4e5f60     (or No, Unsure)\n"
    "    X-Spam-Status: unchecked; reason=timeout           (then no score and no flag)\n"
    "    X-Spam-Checker-Version: Sluice VERSION\n"
    "\n"
    "  Reasons: timeout, size, memory, crashed, model, empty, attempts, input, worker, skipped.\n"
    "  Whatever else goes wrong (no space, sendmail fails) the mail stays in Postfix's queue, which tries again.\n"
    "  So it does where stdout is a pipe that nobody reads any more: Postfix was stopped, and will start us again.\n"
    "  In the worst case, a kill between sendmail's end and its own, a mail comes twice; it is never lost or bounced.\n"
    "\n"
    "Exit status: 0 the mail was handed over whole, or only this text was asked for; 75 it was not: try again.\n"
    "  Nothing else, bad options included; then one line on stderr begins with 4.3.0, which Postfix understands, too.\n"
    "\n"
    "Example:  mail-filter --deliver stdout <prompt.txt >marked\n"
    "See also: classify, pipe(8), sendmail(1).\n"
    "\n"
    "Options:\n"
    "  -f SENDER              envelope sender; empty or <> for a bounce\n"
    "  --deliver HOW          headers: marked, to sendmail  [default]; unchanged: as it came, to sendmail, the verdict\n"
    "                         only in the log; nothing: for a copy of the stream, logged and thrown away; stdout:\n"
    "                         marked, to stdout\n"
    "  --sendmail PATH        [default: /usr/sbin/sendmail]\n"
    "  --send-limit SECONDS   for sendmail  [default: 300]\n"
    "\n"
    "  --socket PATH          ask the worker that listens there (classify --listen PATH), or a process of our own where\n"
    "                         it is absent, busy or dies, or has not answered in half of the deadline\n"
    "  --worker-only          no process of our own\n"
    "  --classify PATH        that process  [default: classify in this program's directory]\n"
    "  -m, --model FILE  -q, --question FILE|NAME    for it, as the next three; a worker has its own\n"
    "  -j, --threads N        [default: 1]\n"
    "  --cache DIR            [default: none]\n"
    "  --calibration FILE     what classify --learn made of mails that were taught  [default: as shipped]\n"
    "  --deadline SECONDS     for the verdict  [default: 60]\n"
    "  --memory MIB           address space of the process, the model's file included  [default: 1024]\n"
    "  --max-size BYTES       a larger mail is not judged: reason=size  [default: 16777216, what classify looks at]\n"
    "  --on-failure HOW       without a verdict: pass  [default]; defer: 75, but for an empty or too large mail\n"
    "  --trust-earlier        a mail that has an X-Spam-Status passes as it is. Anybody can write one: only behind a\n"
    "                         filter that takes forged ones out\n"
    "\n"
    "  --spool DIR            for private files without a name  [default: $TMPDIR or /var/tmp]\n"
    "  --spool-limit BYTES    75 for a larger mail: above message_size_limit  [default: 268435456]\n"
    "  --read-limit SECONDS   for reading the mail  [default: 60]\n"
    "\n"
    "  --queue-id ID          with --state DIR: keep there what became of earlier attempts at this mail. If two never\n"
    "                         came back from judging, it passes with reason=attempts; if sendmail refuses it for the\n"
    "                         third time, it goes without our headers: it may be too large with them. Marks are swept\n"
    "                         after 14 days\n"
    "  --log FILE             append to FILE; -: stderr  [default: syslog, facility mail]; a line a mail, none of its text\n"
    "  -V, --version  -h, --help\n";

enum {
    DELIVER = 256,
    SENDMAIL,
    SEND_LIMIT,
    SOCKET,
    WORKER_ONLY,
    CLASSIFY,
    CACHE,
    DEADLINE,
    MEMORY,
    MAX_SIZE,
    ON_FAILURE,
    TRUST_EARLIER,
    SPOOL,
    SPOOL_LIMIT,
    READ_LIMIT,
    QUEUE_ID,
    STATE,
    LOG,
    CALIBRATION
};

static const struct option LONG[] = {{"deliver", 1, 0, DELIVER},
                                     {"sendmail", 1, 0, SENDMAIL},
                                     {"send-limit", 1, 0, SEND_LIMIT},
                                     {"socket", 1, 0, SOCKET},
                                     {"worker-only", 0, 0, WORKER_ONLY},
                                     {"classify", 1, 0, CLASSIFY},
                                     {"model", 1, 0, 'm'},
                                     {"question", 1, 0, 'q'},
                                     {"threads", 1, 0, 'j'},
                                     {"cache", 1, 0, CACHE},
                                     {"deadline", 1, 0, DEADLINE},
                                     {"memory", 1, 0, MEMORY},
                                     {"max-size", 1, 0, MAX_SIZE},
                                     {"on-failure", 1, 0, ON_FAILURE},
                                     {"trust-earlier", 0, 0, TRUST_EARLIER},
                                     {"spool", 1, 0, SPOOL},
                                     {"spool-limit", 1, 0, SPOOL_LIMIT},
                                     {"read-limit", 1, 0, READ_LIMIT},
                                     {"queue-id", 1, 0, QUEUE_ID},
                                     {"state", 1, 0, STATE},
                                     {"log", 1, 0, LOG},
                                     {"calibration", 1, 0, CALIBRATION},
                                     {"version", 0, 0, 'V'},
                                     {"help", 0, 0, 'h'},
                                     {0, 0, 0, 0}};

/* A whole number from `least` to `most` alone in text: 1 and *value, or 0. */
static int number(uint64_t *value, const char *text, uint64_t least, uint64_t most)
{
    uint64_t v = 0;
    const char *s = text;
    for (; *s >= '0' && *s <= '9' && v <= most; s++)
        v = 10 * v + (uint64_t)(*s - '0');
    *value = v;
    return s != text && !*s && v >= least && v <= most;
}

/* The index of text in names [n], or -1. */
static int choice(const char *text, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(text, names[i]))
            return i;
    return -1;
}

/* Letters and digits: a queue id as Postfix makes them. */
static int is_id(const char *s)
{
    return *s
        && s[strspn(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")] == 0;
}

/* classify in the directory of this program, NULL: unknown. */
static const char *beside(void)
{
    static char path[PATH_MAX + 16];
    const ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    if (n <= 0 || n >= PATH_MAX)
        return NULL;
    path[n] = 0;
    char *slash = strrchr(path, '/');
    if (!slash)
        return NULL;
    strcpy(slash + 1, "classify");
    return path;
}

/* One option: 0 where its value is wrong. */
static int take(options *o, int c, char *value)
{
    static const char *const hows[] = {"headers", "unchanged", "nothing", "stdout"},
                             *const failures[] = {"pass", "defer"};
    uint64_t n = 0;
    int i;
    switch (c) {
    case 'f': o->sender = value; return 1;
    case 'm': o->model = value; return 1;
    case 'q': o->question = value; return 1;
    case 'j': o->threads = value; return number(&n, value, 1, 1024);
    case DELIVER: o->deliver = (enum deliver)(i = choice(value, hows, 4)); return i >= 0;
    case ON_FAILURE: o->defer = i = choice(value, failures, 2); return i >= 0;
    case SENDMAIL: o->sendmail = value; return *value != 0;
    case SOCKET: o->socket = value; return *value != 0;
    case CLASSIFY: o->classify = value; return *value != 0;
    case CALIBRATION: o->calibration = value; return *value != 0;
    case CACHE: o->cache = value; return *value != 0;
    case SPOOL: o->spool = value; return *value != 0;
    case STATE: o->state = value; return *value != 0;
    case LOG: o->log = value; return *value != 0;
    /* no reason to keep a mail from its reader */
    case QUEUE_ID: o->queue_id = is_id(value) ? value : NULL; return 1;
    case WORKER_ONLY: o->worker_only = 1; return 1;
    case TRUST_EARLIER: o->trust_earlier = 1; return 1;
    case DEADLINE:
        i = number(&n, value, 1, 3600);
        o->deadline_ms = (int64_t)n * 1000;
        return i;
    case READ_LIMIT:
        i = number(&n, value, 1, 3600);
        o->read_ms = (int64_t)n * 1000;
        return i;
    case SEND_LIMIT:
        i = number(&n, value, 1, 3600);
        o->send_ms = (int64_t)n * 1000;
        return i;
    case MEMORY:
        i = number(&n, value, 16, 1 << 30);
        o->memory_bytes = n << 20;
        return i;
    case MAX_SIZE:
        i = number(&n, value, 0, INT64_MAX);
        o->max_bytes = n;
        return i;
    case SPOOL_LIMIT:
        i = number(&n, value, 1, INT64_MAX);
        o->spool_bytes = n;
        return i;
    default: return 0;
    }
}

int options_read(options *o, int argc, char **argv, char *why, size_t why_bytes)
{
    const char *tmp = getenv("TMPDIR");
    *o = (options){.classify = beside(),
                   .sendmail = "/usr/sbin/sendmail",
                   .spool = tmp && *tmp == '/' ? tmp : "/var/tmp",
                   .deadline_ms = 60000,
                   .read_ms = 60000,
                   .send_ms = 300000,
                   .max_bytes = 16 << 20,
                   .spool_bytes = 256 << 20,
                   .memory_bytes = (uint64_t)1024 << 20};
    opterr = 0;
    for (int c, at = 1; (c = getopt_long(argc, argv, "+f:m:q:j:Vh", LONG, NULL)) != -1;
         at = optind) {
        if (c == 'h' || c == 'V') {
            const char *text = c == 'h' ? HELP : "mail-filter (sluice) " SLUICE_VERSION "\n";
            (void)!write_whole(1, (const uint8_t *)text, strlen(text), now_ms() + 10000);
            return OPTIONS_SHOWN;
        }
        if (!take(o, c, optarg)) {
            char shown[40];
            log_clean(shown, sizeof shown, argv[at], strlen(argv[at]));
            snprintf(why, why_bytes, "%s: %s (see --help)", shown,
                     c == '?' ? "no such option, or its value is missing" : "not a value it takes");
            return OPTIONS_WRONG;
        }
    }
    o->recipients = argv + optind;
    o->n_recipients = argc - optind;
    const int sends = o->deliver == DELIVER_HEADERS || o->deliver == DELIVER_UNCHANGED;
    const char *wrong = sends && !o->sender ? "-f SENDER is missing"
        : sends && !o->n_recipients         ? "no recipient"
        : o->worker_only && !o->socket      ? "--worker-only needs --socket"
                                            : NULL;
    if (wrong)
        snprintf(why, why_bytes, "%s (see --help)", wrong);
    return wrong ? OPTIONS_WRONG : OPTIONS_RUN;
}
