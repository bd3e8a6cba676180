/* except.h - nodes that match a text but for given words. */
#ifndef SLUICE_GRAMMAR_EXCEPT_H
#define SLUICE_GRAMMAR_EXCEPT_H
#include "grammar/matcher.h"

/* Sets node, arc and n_arc: those of the program, with a tree of nodes in place of each exception.
 * 0, or an error. */
int32_t except_expand(grammar *g, const grammar_program *p);
#endif
