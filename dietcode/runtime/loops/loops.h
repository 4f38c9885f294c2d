/* Loops over structures: nodes put into the order of their levels, and a library's functions called for range after range
 * of them; and what the machine gives at most.
 *
 * All memory is the caller's, and comes as addresses: nothing here is looked at that Python has not checked. */
#ifndef DIETCODE_LOOPS_H
#define DIETCODE_LOOPS_H

#include <stdint.h>
#include <tvm/ffi/c_api.h>

enum { MAX_LEVELS = 1 << 20, PATIENCE_NSECS = 20000000 /* between two looks at signals */ };

/* linearize.c */
typedef enum { GOOD, OUT_OF_RANGE, CYCLE, TOO_DEEP, NO_MEMORY } Problem;

/* A structure, row-major, and what is found out about it. */
typedef struct {
  const int32_t *children; /* [num_nodes, num_columns], -1 where there is none */
  int64_t num_nodes, num_columns;
  int32_t *order, *positions; /* [num_nodes]: own numbers in linear order, and the reverse */
  int32_t *begins;            /* [num_nodes + 1]: of each level, and the end of the last one */
  int32_t *roots;             /* [num_nodes]: the own numbers of nobody's children */
  int64_t num_levels, num_roots;
  int64_t node; /* that has a problem */
} Structure;

Problem linearize(Structure *structure);
/* Where the children of each node lie, [num_slots, num_nodes]; a child that is not there lies behind all nodes. */
void place_children(const Structure *structure, int64_t num_slots, int32_t *out);

/* program.c */
typedef struct Program Program;
Program *make_program(const int64_t *description, int64_t length); /* NULL for none, with an error raised */
void free_program(void *program);
int run_program(const Program *program, const int64_t *addresses, const int64_t *ranges, int64_t num_ranges, int64_t num_nodes,
                int64_t num_copied);

/* probes.c */
int64_t probe_lanes(void);  /* floats of a vector */
int64_t probe_chains(void); /* vectors of a step */
/* Run multiply-adds, or with data [num_threads, steps, chains, lanes] read it, times over, on so many threads at once; the
 * sums [num_threads, chains, lanes] are what that gives. 0, or the error's number where a thread cannot be begun. */
int probe(float *sums, const float *data, int64_t num_threads, int64_t steps, int64_t times);

/* module.c */
int fail(const char *kind, const char *message);

#endif
