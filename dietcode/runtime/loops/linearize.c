/* Nodes by levels: a level is the longest way down to a leaf, so that leaves are level 0, and each level a range. */
#include "loops.h"

#include <stdlib.h>
#include <string.h>

enum { UNSEEN = -1, OPEN = -2 /* its children are being looked at */ };

typedef struct {
  int32_t node;
  int32_t column; /* to be looked at next */
} Visit;

static const int32_t *children_of(const Structure *s, int64_t node) { return s->children + node * s->num_columns; }

/* The level of a node whose children have theirs. */
static int32_t level_above(const Structure *s, const int32_t *levels, int64_t node) {
  const int32_t *children = children_of(s, node);
  int32_t level = 0;
  for (int64_t k = 0; k < s->num_columns; k++)
    if (children[k] >= 0 && levels[children[k]] >= level) level = levels[children[k]] + 1;
  return level;
}

static Problem visit_from(Structure *s, int32_t *levels, Visit *stack, int32_t root) {
  int64_t depth = 0;
  stack[0] = (Visit){root, 0};
  levels[root] = OPEN;
  while (depth >= 0) {
    Visit *top = &stack[depth];
    if (top->column == s->num_columns) {
      levels[top->node] = level_above(s, levels, top->node);
      depth--;
      continue;
    }
    int32_t child = children_of(s, top->node)[top->column++];
    if (child < 0 || levels[child] >= 0) continue;
    if (levels[child] == OPEN) {
      s->node = child;
      return CYCLE;
    }
    levels[child] = OPEN;
    stack[++depth] = (Visit){child, 0};
  }
  return GOOD;
}

/* Of nodes in any order. */
static Problem visit_all(Structure *s, int32_t *levels) {
  Visit *stack = malloc(s->num_nodes * sizeof *stack);
  Problem problem = stack ? GOOD : NO_MEMORY;
  for (int64_t i = 0; i < s->num_nodes; i++) levels[i] = UNSEEN;
  for (int64_t i = 0; i < s->num_nodes && problem == GOOD; i++)
    if (levels[i] == UNSEEN) problem = visit_from(s, levels, stack, (int32_t)i);
  free(stack);
  return problem;
}

/* The children of nodes that come in any order are cache misses; they are asked for some nodes ahead. */
enum { AHEAD = 64 };

static void prefetch_children(const Structure *s, int64_t node) { __builtin_prefetch(children_of(s, node)); }

static void prefetch_of_children(const Structure *s, const int32_t *values, int64_t node) {
  const int32_t *children = children_of(s, node);
  for (int64_t k = 0; k < s->num_columns; k++)
    if (children[k] >= 0) __builtin_prefetch(&values[children[k]]);
}

/* Of nodes in any order: `queue` gets each node behind all its parents, of which it has `num_parents`, and is gone through
 * from its end. Where some nodes never come there is a cycle. */
static Problem peel(Structure *s, int32_t *levels, int32_t *num_parents, int32_t *queue) {
  int64_t length = 0;
  for (int64_t i = 0; i < s->num_nodes; i++)
    if (!num_parents[i]) queue[length++] = (int32_t)i;
  for (int64_t at = 0; at < length; at++) {
    if (at + AHEAD < length) prefetch_children(s, queue[at + AHEAD]);
    if (at + AHEAD / 2 < length) prefetch_of_children(s, num_parents, queue[at + AHEAD / 2]);
    const int32_t *children = children_of(s, queue[at]);
    for (int64_t k = 0; k < s->num_columns; k++)
      if (children[k] >= 0 && --num_parents[children[k]] == 0) queue[length++] = children[k];
  }
  if (length < s->num_nodes) return visit_all(s, levels);
  for (int64_t at = length - 1; at >= 0; at--) {
    if (at >= AHEAD) prefetch_children(s, queue[at - AHEAD]);
    if (at >= AHEAD / 2) prefetch_of_children(s, levels, queue[at - AHEAD / 2]);
    levels[queue[at]] = level_above(s, levels, queue[at]);
  }
  return GOOD;
}

/* Most structures come with all children before their parents, or all behind them: one sweep does. Roots are found on the
 * way, as nobody's children. */
static Problem find_levels(Structure *s, int32_t *levels, int32_t *num_parents) {
  int all_before = 1, all_behind = 1;
  for (int64_t i = 0; i < s->num_nodes; i++) {
    const int32_t *children = children_of(s, i);
    for (int64_t k = 0; k < s->num_columns; k++) {
      int64_t child = children[k];
      if (child == -1) continue;
      if (child < -1 || child >= s->num_nodes) {
        s->node = i;
        return OUT_OF_RANGE;
      }
      num_parents[child]++;
      all_before &= child < i;
      all_behind &= child > i;
    }
  }
  s->num_roots = 0;
  for (int64_t i = 0; i < s->num_nodes; i++)
    if (!num_parents[i]) s->roots[s->num_roots++] = (int32_t)i;
  if (all_before) {
    for (int64_t i = 0; i < s->num_nodes; i++) levels[i] = level_above(s, levels, i);
  } else if (all_behind) {
    for (int64_t i = s->num_nodes - 1; i >= 0; i--) levels[i] = level_above(s, levels, i);
  } else {
    return peel(s, levels, num_parents, s->order);
  }
  return GOOD;
}

/* A counting sort by level, in which nodes of a level stay in the order of their numbers. */
static Problem sort_by_level(Structure *s, const int32_t *levels) {
  int32_t last = -1;
  for (int64_t i = 0; i < s->num_nodes; i++) {
    if (levels[i] <= last) continue;
    last = levels[i];
    s->node = i;
  }
  if (last >= MAX_LEVELS) return TOO_DEEP;
  s->num_levels = last + 1;
  memset(s->begins, 0, (s->num_levels + 1) * sizeof *s->begins);
  for (int64_t i = 0; i < s->num_nodes; i++) s->begins[levels[i] + 1]++;
  for (int64_t level = 0; level < s->num_levels; level++) s->begins[level + 1] += s->begins[level];
  for (int64_t i = 0; i < s->num_nodes; i++) {
    int32_t position = s->begins[levels[i]]++; /* which moves each begin to the next one */
    s->order[position] = (int32_t)i;
    s->positions[i] = position;
  }
  memmove(s->begins + 1, s->begins, s->num_levels * sizeof *s->begins);
  s->begins[0] = 0;
  return GOOD;
}

Problem linearize(Structure *s) {
  int32_t *levels = malloc((s->num_nodes + 1) * sizeof *levels);
  int32_t *num_parents = calloc(s->num_nodes + 1, sizeof *num_parents);
  Problem problem = levels && num_parents ? find_levels(s, levels, num_parents) : NO_MEMORY;
  if (problem == GOOD) problem = sort_by_level(s, levels);
  free(levels);
  free(num_parents);
  return problem;
}

void place_children(const Structure *s, int64_t num_slots, int32_t *out) {
  for (int64_t i = 0; i < s->num_nodes; i++) {
    if (i + AHEAD < s->num_nodes) prefetch_children(s, s->order[i + AHEAD]);
    if (i + AHEAD / 2 < s->num_nodes) prefetch_of_children(s, s->positions, s->order[i + AHEAD / 2]);
    const int32_t *children = children_of(s, s->order[i]);
    for (int64_t k = 0; k < num_slots; k++) {
      int32_t child = k < s->num_columns ? children[k] : -1;
      out[i + k * s->num_nodes] = child < 0 ? (int32_t)s->num_nodes : s->positions[child];
    }
  }
}
