/* matcher.h - the data of a matcher: stack frames, configurations, states. */
#ifndef SLUICE_GRAMMAR_MATCHER_H
#define SLUICE_GRAMMAR_MATCHER_H
#include "api/grammar.h"

enum { MAX_LIVE = 4096 };
struct grammar_frame { /* parent < own number; frame 0 is the bottom */
    int32_t parent;
    int32_t where; /* node to return to, or loop */
    int32_t count; /* rounds done before this one; -1: not a loop */
    uint32_t hash;
    uint32_t shape; /* hash of the stack without its counts */
};
struct grammar_config { int32_t node, stack; };
struct grammar_work { int32_t node, stack, fresh; };
struct seen {
    uint32_t stamp;
    struct grammar_work work;
};
struct grammar_closure { /* scratch of one step */
    struct seen *seen;
    int32_t n_seen, max_seen;
    uint32_t stamp;
    struct grammar_config live[MAX_LIVE];
    int32_t n_live;
    int complete;
};

/* States are numbers from 0; negative numbers are errors. */
enum { STATE_UNKNOWN = -100, PLAIN_NONE = -101, PLAIN_MIXED = -102 };
struct grammar {
    const grammar_node *node;
    const grammar_arc *arc;
    const int32_t *target;
    const grammar_loop *loop;
    const grammar_token *token;
    int32_t has_tokens;
    grammar_node *own_node; /* NULL, or the nodes and arcs with those of exceptions */
    grammar_arc *own_arc;
    int32_t n_arc, n_node;
    int32_t n_loop, current, n_steps, tidy_frame, has_loops;
    uint8_t class_of[256], byte_of[256]; /* classes of bytes; one byte of each class */
    int32_t n_class;
    struct grammar_frame *frame; /* stacks: linked frames, equal ones stored once */
    int32_t *frame_hash, n_frame, max_frame, n_frame_hash;
    struct grammar_config *config; /* configurations of all states */
    int32_t n_config, max_config;
    struct grammar_states *state;
    int32_t *state_hash, n_state, max_state, n_state_hash;
    int32_t *step; /* [max_state, n_class]: the next state, or STATE_UNKNOWN */
    struct grammar_work *work;
    int32_t n_work, max_work;
    int32_t *after_plain; /* [n_node] the node after any plain character, or ... ; see plain.c */
    uint64_t n_mask_bytes;
    struct grammar_closure *closure;
};
struct grammar_states {
    int32_t first, n; /* its configurations */
    uint32_t hash;
    uint8_t complete, last;
    uint16_t n_visit;
    uint8_t plain_known;
    int32_t after_plain; /* the state after any plain character, or PLAIN_NONE, PLAIN_MIXED */
    uint64_t loops;      /* classes of bytes that lead back to this state; see mask.c */
    uint64_t *mask;      /* cached result of grammar_allowed, or NULL */
};
/* The state after `class`; negative: an error. */
int32_t grammar_next(grammar *g, int32_t state, int32_t class);
/* Drops all but the current state if the tables have grown; 0, or an error. */
int32_t grammar_tidy(grammar *g);
void grammar_drop_masks(grammar *g);
#endif
