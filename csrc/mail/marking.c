/* marking.c - mark a message: remove its X-Spam headers and add those of a verdict.
 *
 * This file only marks.  Yes, no or unsure is decided in lib/sluice/classify/classifier.py, by
 * `classify` or its worker; it comes as the line that mark_read parses.
 *
 * Removed are all top-level headers whose name begins with X-Spam-, in any case, with spaces before
 * the colon, folded and repeated, each with its continuation lines.  RFC 5322, section 2.2, with
 * the obsolete spaces of 4.5, defines a header line and the end of the headers.  It is read as
 * Postfix's mime_state.c reads it: printable ASCII without a colon, spaces, a colon; the first line
 * that is neither that nor a continuation ends the headers.
 *
 * Diagnostics: mark_read returns -1 for a line that is no verdict; mark_mail cannot fail.
 *
 * Guards against forged X-Spam headers, for every reader of the message.  Readers differ in three
 * points:
 *   - If a line that is not empty ends the headers, an empty one is inserted, as Postfix does.
 *   - Some (procmail) do not take CRs alone for an empty line: if the first line ends with LF, only
 *     LF alone is one.
 *   - For some a bare CR ends a line.  An X-Spam header after one is removed up to the end of the
 *     line, with these CRs.
 * Lines at the very top like "From user Thu Jan 1 ..." (mbox; any number of > before) stay first:
 * sendmail drops them.
 *
 * One pass over the headers; the body is not read. */
#include <stdint.h>
#include <string.h>
#include "api/mail.h"

#define FAMILY "x-spam-"
#define CHECKER "X-Spam-Checker-Version: Sluice " SLUICE_VERSION "\n"
#define STATUS "x-spam-status"
enum { FROM_BYTES = 998 };

static const char *const word[] = {"timeout", "size",     "memory", "crashed", "model",
                                   "empty",   "attempts", "input",  "worker",  "skipped"};

const char *mark_word(int32_t reason)
{
    return reason >= 0 && reason < (int32_t)(sizeof word / sizeof *word) ? word[reason] : NULL;
}

/* Whether text [n_bytes] is the zero-terminated s. */
static int is(const uint8_t *text, uint64_t n_bytes, const char *s)
{
    return n_bytes == strlen(s) && !memcmp(text, s, n_bytes);
}

/* "0.0000" to "1.0000". */
static int is_probability(const uint8_t *s)
{
    if (s[0] != '0' && s[0] != '1')
        return 0;
    for (int i = 2; i < 6; i++)
        if (s[i] < '0' || s[i] > (s[0] == '1' ? '0' : '9'))
            return 0;
    return s[1] == '.';
}

static char *put(char *at, const char *s)
{
    const size_t n = strlen(s);
    memcpy(at, s, n + 1);
    return at + n;
}

/* text [text_bytes] = what stands behind `key` at s, up to a space or `end`: characters of `of`,
 * one at least.  Returns what follows, or NULL. */
static const uint8_t *value(char *text, size_t text_bytes, const uint8_t *s, const uint8_t *end,
                            const char *key, const char *of)
{
    const size_t n_key = strlen(key);
    size_t n = 0;
    if ((size_t)(end - s) < n_key || memcmp(s, key, n_key))
        return NULL;
    for (s += n_key; s < end && *s != ' ' && *s && strchr(of, *s) && n + 1 < text_bytes; s++)
        text[n++] = (char)*s;
    text[n] = 0;
    return n && (s == end || *s == ' ') ? s : NULL;
}

/* The words behind a verdict. 0, or -1: they are none. */
static int read_words(mail_verdict *out, const uint8_t *s, const uint8_t *end)
{
    static const char number[] = "0123456789.+-none", letters[] = "abcdefghijklmnopqrstuvwxyz:,-";
    static const char name[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    char part[3][13];
    const uint8_t *next;
    if (s < end && (next = value(out->rule, sizeof out->rule, s, end, " rule=", name)))
        s = next;
    if (s == end)
        return 0;
    if (!(s = value(part[0], sizeof part[0], s, end, " model=", number))
        || !(s = value(part[1], sizeof part[1], s, end, " tokens=", number))
        || !(s = value(part[2], sizeof part[2], s, end, " taught=", number))
        || !(s = value(out->signals, sizeof out->signals, s, end, " signals=", letters)))
        return -1;
    char *at = put(put(out->numbers, "model="), part[0]);
    at = put(put(at, " tokens="), part[1]);
    put(put(at, " taught="), part[2]);
    return s == end ? 0 : -1;
}

int32_t mark_read(mail_verdict *out, const uint8_t *line, uint64_t n_bytes)
{
    static const struct {
        const char *name;
        int32_t answer;
    } answers[] = {{"yes", MARK_YES}, {"no", MARK_NO}, {"unsure", MARK_UNSURE}};
    enum { REST = 1 + 6 + 1 + 6 + 1 + 16 }; /* " 0.9931 0.9386 3f9a0c1b2d4e5f60" */
    memset(out, 0, sizeof *out);
    if (n_bytes > 6 && !memcmp(line, "error ", 6)) {
        out->answer = MARK_UNCHECKED;
        for (; mark_word(out->reason); out->reason++)
            if (is(line + 6, n_bytes - 6, word[out->reason]))
                return 0;
        return -1;
    }
    for (int a = 0; a < 3; a++) {
        const uint64_t at = strlen(answers[a].name);
        if (n_bytes < at + REST || memcmp(line, answers[a].name, at))
            continue;
        const uint8_t *s = line + at;
        if (s[0] != ' ' || s[7] != ' ' || s[14] != ' ' || !is_probability(s + 1)
            || !is_probability(s + 8))
            return -1;
        for (int i = 15; i < REST; i++)
            if (!(s[i] >= '0' && s[i] <= '9') && !(s[i] >= 'a' && s[i] <= 'f'))
                return -1;
        out->answer = answers[a].answer;
        memcpy(out->score, s + 1, 6);
        memcpy(out->required, s + 8, 6);
        memcpy(out->model, s + 15, 16);
        return read_words(out, s + REST, line + n_bytes);
    }
    return -1;
}

int64_t mark_headers(char *out, const mail_verdict *v)
{
    char *at = out;
    if (v->answer == MARK_UNCHECKED) {
        at = put(put(at, "X-Spam-Status: unchecked; reason="),
                 mark_word(v->reason) ? mark_word(v->reason) : "crashed");
    } else {
        at = put(put(at, "X-Spam-Flag: "), v->answer == MARK_YES ? "YES" : "NO");
        at = put(put(at, "\nX-Spam-Score: "), v->score);
        at = put(put(at, "\nX-Spam-Status: "),
                 v->answer == MARK_YES      ? "Yes"
                     : v->answer == MARK_NO ? "No"
                                            : "Unsure");
        at = put(put(put(put(at, ", score="), v->score), " required="), v->required);
        at = put(put(at, " model="), v->model);
        if (*v->rule)
            at = put(put(at, " rule="), v->rule);
        if (*v->numbers) {
            at = put(put(at, "\nX-Spam-Explain: "), v->numbers);
            at = put(put(at, " rule="), *v->rule ? v->rule : "none");
            at = put(put(at, " signals="), v->signals);
        }
    }
    return put(at, "\n" CHECKER) - out;
}

/* Bytes of the header's name that line [n_bytes] begins with, 0: it is no header line. */
static uint64_t name_bytes(const uint8_t *line, uint64_t n_bytes)
{
    uint64_t n = 0, at;
    while (n < n_bytes && line[n] > ' ' && line[n] < 127 && line[n] != ':')
        n++;
    for (at = n; at < n_bytes && (line[at] == ' ' || line[at] == '\t'); at++)
        ;
    return at < n_bytes && line[at] == ':' ? n : 0;
}

/* Whether line [n_bytes] begins with `lower`, in any case. */
static int begins(const uint8_t *line, uint64_t n_bytes, const char *lower)
{
    uint64_t i = 0;
    while (i < n_bytes && lower[i]
           && (line[i] >= 'A' && line[i] <= 'Z' ? line[i] | 32 : line[i]) == (uint8_t)lower[i])
        i++;
    return !lower[i];
}

/* Whether the line [n_bytes] is an X-Spam header. */
static int is_own(const uint8_t *line, uint64_t n_bytes)
{
    return begins(line, n_bytes, FAMILY) && name_bytes(line, n_bytes);
}

/* Byte after the line of mail [n_bytes] that begins at `at`. */
static uint64_t line_end(const uint8_t *mail, uint64_t n_bytes, uint64_t at)
{
    const uint8_t *lf = at < n_bytes ? memchr(mail + at, '\n', n_bytes - at) : NULL;
    return lf ? (uint64_t)(lf - mail) + 1 : n_bytes;
}

/* Whether the line, a whole one, is an mbox's separator and no header "From : ...". */
static int is_from(const uint8_t *line, uint64_t n_bytes)
{
    uint64_t n = 0;
    while (n < n_bytes && line[n] == '>')
        n++;
    return n_bytes <= FROM_BYTES && n_bytes - n > 5 && !memcmp(line + n, "From ", 5)
        && line[n_bytes - 1] == '\n' && !name_bytes(line, n_bytes);
}

/* The new beginning as it grows; `to` NULL: it is only measured. */
typedef struct {
    uint8_t *to;
    uint64_t n;
} growing;

static void add_bytes(growing *g, const uint8_t *from, uint64_t n)
{
    if (g->to && n)
        memcpy(g->to + g->n, from, n);
    g->n += n;
}

static void add_lines(growing *g, const uint8_t *from, uint64_t n, int crlf)
{
    for (uint64_t i = 0; i < n; i++) {
        if (from[i] == '\n' && crlf)
            add_bytes(g, (const uint8_t *)"\r", 1);
        add_bytes(g, from + i, 1);
    }
}

/* A line that stays, but for own headers that begin after a bare CR within it. */
static void add_kept(growing *g, mail_marking *out, const uint8_t *line, uint64_t n_bytes)
{
    const uint8_t *cr;
    uint64_t kept = 0, at = 0;
    while (at < n_bytes && (cr = memchr(line + at, '\r', n_bytes - at))) {
        at = (uint64_t)(cr - line) + 1;
        if (!is_own(line + at, n_bytes - at))
            continue;
        uint64_t stop = at - 1;
        while (stop > kept && line[stop - 1] == '\r')
            stop--;
        add_bytes(g, line + kept, stop - kept);
        while (at < n_bytes && line[at] != '\r' && line[at] != '\n')
            at++;
        kept = at;
        out->n_removed++;
    }
    add_bytes(g, line + kept, n_bytes - kept);
}

void mark_mail(mail_marking *out, uint8_t *to, const uint8_t *mail, uint64_t n_bytes,
               const uint8_t *head, uint64_t head_bytes)
{
    growing g = {to, 0};
    uint64_t at = 0, end = line_end(mail, n_bytes, 0);
    const int crlf = end >= 2 && mail[end - 1] == '\n' && mail[end - 2] == '\r';
    int removing = 0, any = 0;
    memset(out, 0, sizeof *out);
    for (; at < n_bytes && is_from(mail + at, (end = line_end(mail, n_bytes, at)) - at); at = end)
        add_kept(&g, out, mail + at, end - at);
    add_lines(&g, head, head_bytes, crlf);
    for (; at < n_bytes; at = end) {
        const uint8_t *line = mail + at;
        end = line_end(mail, n_bytes, at);
        if (name_bytes(line, end - at)) {
            removing = is_own(line, end - at);
            out->n_removed += (uint64_t)removing;
            out->n_status += (uint64_t)(removing && begins(line, end - at, STATUS)
                                        && name_bytes(line, end - at) == sizeof STATUS - 1);
        } else if (!any || (*line != ' ' && *line != '\t'))
            break;
        any = 1;
        if (!removing)
            add_kept(&g, out, line, end - at);
    }
    out->n_read = at;
    while (at < n_bytes && mail[at] == '\r')
        at++;
    const int is_empty = at < n_bytes && mail[at] == '\n' && (crlf || at == out->n_read);
    if (head_bytes && (n_bytes == 0 || (out->n_read < n_bytes && !is_empty)))
        add_lines(&g, (const uint8_t *)"\n", 1, crlf);
    out->n_out = g.n;
}
