/* options.c - the command line of mail-filter, and the text of --help.
 *
 * Diagnostics: OPTIONS_WRONG and an error text.
 * Guards against control characters in the error text, which Postfix puts into its log. */
#define _GNU_SOURCE
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "mail/filter/filter.h"

static const char HELP[] =
    "NAME\n"
    "  mail-filter - mark a message with the answer of classify, for Postfix\n"
    "SYNOPSIS\n"
    "  mail-filter [OPTIONS] -f SENDER -- RECIPIENT... <message\n"
    "  mail-filter [OPTIONS] --deliver nothing|stdout <message\n"
    "DESCRIPTION\n"
    "  Postfix's pipe(8) starts this program for each message. It reads the message\n"
    "  into a private file, asks classify for a verdict, removes every X-Spam\n"
    "  header that came with the message, adds its own at the top and passes the\n"
    "  result to sendmail -G -i. All other bytes stay as they were. The headers:\n"
    "\n"
    "    X-Spam-Flag: YES           (NO also if unsure)\n"
    "    X-Spam-Score: 0.9656       (probability of spam)\n"
    "    X-Spam-Status: Yes, score=0.9656 required=0.8681 model=3f9a0c1b2d4e5f60\n"
    "                               (or No, or Unsure; then rule=NAME if a rule\n"
    "                               of classify --rules decided)\n"
    "    X-Spam-Checker-Version: Sluice VERSION\n"
    "\n"
    "  Without a verdict before the deadline the message is delivered with\n"
    "  \"X-Spam-Status: unchecked; reason=WORD\" and without flag and score. WORD is\n"
    "  timeout, size, memory, crashed, model, empty, attempts, input, worker or\n"
    "  skipped.\n"
    "\n"
    "  After any other error (no space, sendmail fails) the message stays in\n"
    "  Postfix's queue, and Postfix tries again. The same holds if stdout is a pipe\n"
    "  without a reader: Postfix was stopped, and will start this program again. No\n"
    "  message is lost or bounced. If this process is killed between the end of\n"
    "  sendmail and its own end, the message arrives twice.\n"
    "OPTIONS\n"
    " Delivery\n"
    "  -f SENDER               Envelope sender; empty or <> for a bounce\n"
    "  --deliver HOW           What becomes of the message. headers: marked, to\n"
    "                          sendmail. unchanged: as it came, to sendmail; the\n"
    "                          verdict is only logged. nothing: logged and\n"
    "                          discarded, for a copy of the mail stream. stdout:\n"
    "                          marked, to stdout. [headers]\n"
    "  --sendmail PATH         Program that delivers [/usr/sbin/sendmail]\n"
    "  --send-limit SECONDS    Time limit of that program [300]\n"
    "  --on-failure HOW        Without a verdict: pass, or defer (status 75, except\n"
    "                          for an empty or too large message) [pass]\n"
    "  --trust-earlier         Deliver a message that has an X-Spam-Status header as\n"
    "                          it came. Anyone can write that header: use this only\n"
    "                          behind a filter that removes forged ones.\n"
    " Verdict\n"
    "  --socket PATH           Ask the worker that listens there (classify --listen\n"
    "                          PATH). If the worker is absent, busy or dies, or has\n"
    "                          not answered in half of the deadline, run classify.\n"
    "  --worker-only           Never run classify\n"
    "  --classify PATH         Program to run [classify in the directory of\n"
    "                          mail-filter]\n"
    "  -m, --model FILE        Model of that program; a worker has its own\n"
    "  -q, --question Q        Question of that program; a worker has its own\n"
    "  -j, --threads N         Threads of that program [1]\n"
    "  --cache DIR             Cache of that program [none]\n"
    "  --calibration FILE      Calibration of that program, made by classify --learn\n"
    "                          [the question's own]\n"
    "  --learned-by recipient  Use the calibration that the recipient learned,\n"
    "                          DIR/USER/QUESTION.calibration. USER is the address up\n"
    "                          to + or @ in lower case: 1 to 40 of a-z 0-9 . _ -.\n"
    "                          Several recipients, other names and users without a\n"
    "                          file get the site's calibration.\n"
    "  --learned-in DIR        That directory, for classify; a worker has its own\n"
    "  --rules FILE            Allow and block lists for classify; a worker has its\n"
    "                          own\n"
    "  --authserv-id ID        Server whose Authentication-Results classify trusts,\n"
    "                          up to 8 times; a worker has its own\n"
    "  --client ADDRESS        IP address of the host that delivered the message,\n"
    "                          for rules: ${client_address} of Postfix\n"
    "  --explain-header        Add X-Spam-Explain: numbers and fixed words that say\n"
    "                          what led to the answer\n"
    "  --deadline SECONDS      Time limit of a verdict [60]\n"
    "  --memory MIB            Address space of that program in MiB; the model's\n"
    "                          file counts [1024]\n"
    "  --max-size BYTES        Do not classify a larger message: reason=size.\n"
    "                          classify itself reads as much as the default.\n"
    "                          [16777216]\n"
    " Files\n"
    "  --spool DIR             Directory of the private files, which have no name\n"
    "                          [$TMPDIR or /var/tmp]\n"
    "  --spool-limit BYTES     End with 75 if the message is larger; choose more\n"
    "                          than Postfix's message_size_limit [268435456]\n"
    "  --read-limit SECONDS    Time limit for reading the message [60]\n"
    "  --queue-id ID           Postfix's ID of the message, for --state and the log\n"
    "  --state DIR             Count in DIR, by queue ID and recipients, the\n"
    "                          attempts that failed. After two that did not return\n"
    "                          from classify the message passes with\n"
    "                          reason=attempts. If sendmail refuses it for the third\n"
    "                          time, it is sent without the new headers, which may\n"
    "                          make it too large. Counts are removed after 14 days.\n"
    "  --log FILE              Append one line per message to FILE, without its\n"
    "                          text; - is stderr [syslog, facility mail]\n"
    " General\n"
    "  -h, --help              Print this text\n"
    "  -V, --version           Print the version\n"
    "EXIT STATUS\n"
    "  0   the message was delivered, or this text or the version was printed\n"
    "  75  the message was not delivered; retry. Also the status of usage errors.\n"
    "\n"
    "  There is no other status. With 75, one line on stderr begins with 4.3.0,\n"
    "  which Postfix understands, too. After an end by a signal Postfix tries\n"
    "  again: SIGALRM (it hung), SIGKILL (lack of memory, or a hard RLIMIT_CPU),\n"
    "  SIGSEGV before its first instruction (RLIMIT_DATA below 140 KiB, RLIMIT_AS\n"
    "  below 1200 KiB, RLIMIT_STACK below 20 KiB and the size of arguments and\n"
    "  environment). It first raises soft limits to the hard ones, and ends with 75\n"
    "  if RLIMIT_DATA is below 512 KiB, RLIMIT_AS below 2 MiB, or RLIMIT_STACK\n"
    "  below 256 KiB.\n"
    "EXAMPLES\n"
    "  mail-filter --deliver stdout <prompt.txt >marked\n"
    "SEE ALSO\n"
    "  classify, mail-milter, pipe(8), sendmail(1)\n";

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
    CALIBRATION,
    RULES,
    AUTHSERV_ID,
    CLIENT,
    LEARNED_BY,
    LEARNED_IN,
    EXPLAIN
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
                                     {"rules", 1, 0, RULES},
                                     {"authserv-id", 1, 0, AUTHSERV_ID},
                                     {"client", 1, 0, CLIENT},
                                     {"learned-by", 1, 0, LEARNED_BY},
                                     {"learned-in", 1, 0, LEARNED_IN},
                                     {"explain-header", 0, 0, EXPLAIN},
                                     {"version", 0, 0, 'V'},
                                     {"help", 0, 0, 'h'},
                                     {0, 0, 0, 0}};

/* A whole number from `min` to `max` alone in text: 1 and *value, or 0. */
static int number(uint64_t *value, const char *text, uint64_t min, uint64_t max)
{
    uint64_t v = 0;
    const char *s = text;
    for (; *s >= '0' && *s <= '9' && v <= max; s++)
        v = 10 * v + (uint64_t)(*s - '0');
    *value = v;
    return s != text && !*s && v >= min && v <= max;
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
static const char *default_classify(void)
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

/* Stores one option; 0 if its value is wrong. */
static int store(options *o, int c, char *value)
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
    /* a wrong ID is no reason to defer a message */
    case QUEUE_ID: o->queue_id = is_id(value) ? value : NULL; return 1;
    case WORKER_ONLY: o->worker_only = 1; return 1;
    case TRUST_EARLIER: o->trust_earlier = 1; return 1;
    case RULES: o->rules = value; return *value != 0;
    case LEARNED_IN: o->learned_in = value; return *value != 0;
    case LEARNED_BY: o->by_recipient = !strcmp(value, "recipient"); return o->by_recipient;
    case EXPLAIN: o->explain = 1; return 1;
    /* "unknown" and the like: as an ID */
    case CLIENT:
        if (worker_address(o->client, value))
            *o->client = 0;
        return 1;
    case AUTHSERV_ID:
        if (o->n_authserv_ids == N_AUTHSERV_IDS)
            return 0;
        o->authserv_ids[o->n_authserv_ids++] = value;
        return *value != 0;
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
    *o = (options){.classify = default_classify(),
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
        if (!store(o, c, optarg)) {
            char shown[40];
            log_clean(shown, sizeof shown, argv[at], strlen(argv[at]));
            snprintf(why, why_bytes, "%s: %s (see --help)", shown,
                     c == '?' ? "no such option, or its value is missing" : "invalid value");
            return OPTIONS_WRONG;
        }
    }
    o->recipients = argv + optind;
    o->n_recipients = argc - optind;
    if (!o->by_recipient || o->n_recipients != 1 || worker_user(o->user, o->recipients[0]))
        *o->user = 0;
    const int sends = o->deliver == DELIVER_HEADERS || o->deliver == DELIVER_UNCHANGED;
    const char *wrong = sends && !o->sender ? "-f SENDER is missing"
        : sends && !o->n_recipients         ? "no recipient"
        : o->worker_only && !o->socket      ? "--worker-only needs --socket"
                                            : NULL;
    if (wrong)
        snprintf(why, why_bytes, "%s (see --help)", wrong);
    return wrong ? OPTIONS_WRONG : OPTIONS_RUN;
}
