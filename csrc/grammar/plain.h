/* plain.h - where plain characters lead. */
#ifndef SLUICE_GRAMMAR_PLAIN_H
#define SLUICE_GRAMMAR_PLAIN_H
#include "grammar/matcher.h"

/* The state after any plain character (split.h), if it is the same for all of them; PLAIN_NONE if
 * none is allowed, PLAIN_MIXED otherwise; or an error. */
int32_t plain_next(grammar *g, int32_t state);
/* The same where some characters of one byte differ: sets their bits in but[2]. PLAIN_MIXED if they
 * are many. */
int32_t plain_next_but(grammar *g, int32_t state, uint64_t *but);
#endif
