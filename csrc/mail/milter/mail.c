/* mail.c - a message in memory, within limits.
 *
 * Diagnostics: mail.reason.
 * Guards against messages that fill the memory, one by one or all together, and against thousands
 * of X-Spam header names. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "mail/milter/mail.h"

/* X-Spam header names that are kept for one message. All filters together use some twenty; a
 * message with more is an attack. The names of this program are removed in any case. */
enum { MAX_NAMES = 256, MAX_NAME_BYTES = 16 << 10, FIRST_BYTES = 16 << 10 };
static const char *const ours[] = {"X-Spam-Flag", "X-Spam-Score", "X-Spam-Status",
                                   "X-Spam-Checker-Version"};
enum { N_OURS = sizeof ours / sizeof *ours };

struct mail_limits mail_limits = {16 << 20, 256 << 20};
static atomic_size_t in_use; /* bytes of all messages */

void mail_give_up(mail *m, int32_t reason)
{
    free(m->bytes);
    atomic_fetch_sub(&in_use, m->n_allocated);
    m->bytes = NULL;
    m->n_bytes = m->n_allocated = 0;
    m->reason = reason;
}

void mail_clear(mail *m)
{
    for (size_t i = 0; i < m->n_own; i++)
        free(m->own[i].name);
    free(m->own);
    mail_give_up(m, MAIL_CHECKED);
    memset(m, 0, sizeof *m);
    m->reason = MAIL_CHECKED;
}

/* Make space for n more bytes: MAIL_CHECKED, or the reason for failure. */
static int32_t grow(mail *m, size_t n)
{
    size_t to = m->n_allocated ? m->n_allocated : FIRST_BYTES;
    if (n > mail_limits.one || m->n_bytes > mail_limits.one - n)
        return MARK_SIZE;
    while (to < m->n_bytes + n)
        to = to > mail_limits.one / 2 ? mail_limits.one : 2 * to;
    if (to <= m->n_allocated)
        return MAIL_CHECKED;
    const size_t more = to - m->n_allocated;
    uint8_t *bytes = NULL;
    if (atomic_fetch_add(&in_use, more) + more <= mail_limits.all)
        bytes = realloc(m->bytes, to);
    if (!bytes) {
        atomic_fetch_sub(&in_use, more);
        return MARK_MEMORY;
    }
    m->bytes = bytes;
    m->n_allocated = to;
    return MAIL_CHECKED;
}

void mail_add(mail *m, const void *bytes, size_t n)
{
    if (m->reason != MAIL_CHECKED || !n)
        return;
    const int32_t reason = grow(m, n);
    if (reason != MAIL_CHECKED) {
        mail_give_up(m, reason);
        return;
    }
    memcpy(m->bytes + m->n_bytes, bytes, n);
    m->n_bytes += n;
}

/* Count an X-Spam header, name [n]. */
static void count(mail *m, const char *name, size_t n)
{
    m->n_forged++;
    for (size_t i = 0; i < m->n_own; i++)
        if (!strncasecmp(m->own[i].name, name, n) && !m->own[i].name[n]) {
            m->own[i].n++;
            return;
        }
    int is_ours = 0;
    for (int i = 0; i < N_OURS; i++)
        is_ours |= strlen(ours[i]) == n && !strncasecmp(ours[i], name, n);
    own_name *own = NULL;
    char *copy = NULL;
    if (is_ours || (m->n_own < MAX_NAMES && n < MAX_NAME_BYTES - m->own_bytes))
        own = realloc(m->own, (m->n_own + 1) * sizeof *own);
    if (own) {
        m->own = own;
        copy = strndup(name, n);
    }
    if (!copy) {
        m->n_left++;
        return;
    }
    own[m->n_own++] = (own_name){copy, 1, is_ours};
    m->own_bytes += is_ours ? 0 : n;
}

void mail_add_header(mail *m, const char *name, const char *value, int with_space)
{
    size_t n = strlen(name);
    m->n_headers++;
    mail_add(m, name, n);
    mail_add(m, ": ", with_space ? 1 : 2);
    while (n && (name[n - 1] == ' ' || name[n - 1] == '\t'))
        n--;
    for (const char *line = value, *end; line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        size_t line_bytes = end ? (size_t)(end - line) : strlen(line);
        if (end && line_bytes && line[line_bytes - 1] == '\r')
            line_bytes--;
        mail_add(m, line, line_bytes);
        mail_add(m, "\r\n", 2);
    }
    static const char family[] = "X-Spam-";
    if (n >= sizeof family - 1 && !strncasecmp(name, family, sizeof family - 1))
        count(m, name, n);
}
