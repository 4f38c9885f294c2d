/* Structures of all kinds, and programs of moves, on several threads at once: says "right" where all is as it should be. */
#include "loops.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_THREADS = 4, NUM_ROUNDS = 60, MANY = 100000, WIDTH = 3 };

static uint64_t next_number(uint64_t *state) {
  *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
  return *state;
}

static void must(int is_so, const char *what) {
  if (is_so) return;
  fprintf(stderr, "wrong: %s\n", what);
  exit(1);
}

/* A structure in memory that is exactly as large as it has to be, so that a sanitizer sees whatever is past it. */
static Structure made(const int32_t *children, int64_t num_nodes, int64_t num_columns) {
  Structure s = {.num_nodes = num_nodes, .num_columns = num_columns};
  int32_t *own = malloc(num_nodes * num_columns * sizeof *own);
  if (num_nodes > 0 && num_columns > 0) memcpy(own, children, num_nodes * num_columns * sizeof *own);
  s.children = own;
  s.order = malloc(num_nodes * sizeof *s.order);
  s.positions = malloc(num_nodes * sizeof *s.positions);
  s.begins = malloc((num_nodes + 1) * sizeof *s.begins);
  s.roots = malloc(num_nodes * sizeof *s.roots);
  return s;
}

static void freed(Structure *s) {
  free((void *)s->children), free(s->order), free(s->positions), free(s->begins), free(s->roots);
}

static Problem problem_of(const int32_t *children, int64_t num_nodes, int64_t num_columns) {
  Structure s = made(children, num_nodes, num_columns);
  Problem problem = linearize(&s);
  freed(&s);
  return problem;
}

/* Children lie before their parents, each level in a range of its own, and places are those of the children. */
static void check(const int32_t *children, int64_t num_nodes, int64_t num_columns, int64_t num_slots) {
  Structure s = made(children, num_nodes, num_columns);
  must(linearize(&s) == GOOD, "a structure that is right");
  must(s.begins[s.num_levels] == num_nodes, "all nodes are in levels");
  int32_t *places = malloc(num_slots * num_nodes * sizeof *places);
  place_children(&s, num_slots, places);
  int64_t level = 0;
  for (int64_t i = 0; i < num_nodes; i++) {
    while (i >= s.begins[level + 1]) level++;
    must(s.positions[s.order[i]] == i, "positions are the reverse of the order");
    for (int64_t k = 0; k < num_slots; k++) {
      int32_t child = k < num_columns ? children[s.order[i] * num_columns + k] : -1;
      int32_t place = places[k * num_nodes + i];
      must(child < 0 ? place == num_nodes : s.order[place] == child && place < s.begins[level], "places of children");
    }
  }
  free(places);
  freed(&s);
}

static void random_structures(uint64_t *state) {
  for (int round = 0; round < NUM_ROUNDS; round++) {
    int64_t num_nodes = next_number(state) % 50, num_columns = next_number(state) % 5;
    int32_t names[50], children[50 * 5], wild[50 * 5];
    for (int64_t i = 0; i < num_nodes; i++) {
      int64_t other = next_number(state) % (i + 1);
      names[i] = names[other], names[other] = (int32_t)i;
    }
    for (int64_t i = 0; i < num_nodes; i++)
      for (int64_t k = 0; k < num_columns; k++) {
        int is_there = i && next_number(state) % 3;
        children[names[i] * num_columns + k] = is_there ? names[next_number(state) % i] : -1;
        wild[i * num_columns + k] = (int32_t)(next_number(state) % (num_nodes + 2)) - 1 - (next_number(state) % 9 == 0);
      }
    check(children, num_nodes, num_columns, num_columns + next_number(state) % 3);
    problem_of(wild, num_nodes, num_columns); /* cycles and numbers of no node: whatever is found, nothing breaks */
  }
}

static void hostile_structures(void) {
  must(problem_of(NULL, 0, 2) == GOOD, "no nodes");
  must(problem_of((int32_t[]){-1}, 1, 1) == GOOD && problem_of(NULL, 1, 0) == GOOD, "one node");
  must(problem_of((int32_t[]){0}, 1, 1) == CYCLE, "its own child");
  must(problem_of((int32_t[]){1, 2, 0}, 3, 1) == CYCLE, "a cycle of three");
  must(problem_of((int32_t[]){-1, 0, 3, 2}, 4, 1) == CYCLE, "a cycle beside a tree");
  int32_t outside[] = {2, -2, INT32_MAX, INT32_MIN};
  for (int i = 0; i < 4; i++) must(problem_of((int32_t[]){-1, outside[i]}, 2, 1) == OUT_OF_RANGE, "out of range");
  int32_t *children = malloc((MAX_LEVELS + 1) * sizeof *children);
  for (int32_t i = 0; i <= MAX_LEVELS; i++) children[i] = i - 1;
  must(problem_of(children, MAX_LEVELS + 1, 1) == TOO_DEEP, "too deep, children first");
  must(problem_of(children, MAX_LEVELS, 1) == GOOD, "as deep as is allowed");
  for (int32_t i = 0; i <= MAX_LEVELS; i++) children[i] = (i * 7 + 7) % (MAX_LEVELS + 1);
  must(problem_of(children, MAX_LEVELS + 1, 1) == CYCLE, "a long cycle in no order");
  free(children);
}

/* All children of one parent, which is the first node: each other node is a leaf. */
static void wide_structure(void) {
  int32_t *children = malloc((int64_t)(MANY + 1) * WIDTH * sizeof *children);
  memset(children, 0xff, (int64_t)(MANY + 1) * WIDTH * sizeof *children);
  int32_t *row = malloc(MANY * sizeof *row);
  for (int32_t i = 0; i < MANY; i++) row[i] = -1;
  Structure s = made(row, 1, MANY);
  must(linearize(&s) == GOOD && s.num_levels == 1, "a row of children that are not there");
  int32_t *places = malloc(MANY * sizeof *places);
  place_children(&s, MANY, places);
  for (int32_t i = 0; i < MANY; i++) must(places[i] == 1, "places behind all nodes");
  free(places), free(row), freed(&s);
  for (int32_t i = 1; i <= MANY; i++) children[(int64_t)i * WIDTH + i % WIDTH] = 0; /* one child of 1e5 parents */
  check(children, MANY + 1, WIDTH, WIDTH);
  free(children);
}

/* Two numbers of each of five rows, the other way round, read at positions; descriptions that were changed are refused or
 * made, and given back. */
static void programs(uint64_t *state) {
  int64_t move[] = {3, 1, 1, 0, 3, 9,                                                     /* buffers, phases, calls; the call */
                    1, 1, 8, 0, 2, 32, 0, 0, 0, 0, 0, 2, 32, 0, 1, 2, 4, 0, 0, 32, 0,    /* target, source, positions */
                    1, 0, 0, 2, 0, 0, -1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0, 0, 8, 0, 0, 0, 0, 0, /* see run_move */
                    0, 0};
  int64_t length = sizeof move / sizeof *move;
  Program *program = make_program(move, length);
  must(program != NULL, "a program of a move");
  uint32_t source[10], target[10];
  int32_t positions[5];
  for (uint32_t i = 0; i < 10; i++) source[i] = i + 1;
  for (int32_t i = 0; i < 5; i++) positions[i] = (int32_t)(next_number(state) % 5);
  int64_t addresses[] = {(int64_t)(intptr_t)source, (int64_t)(intptr_t)target, (int64_t)(intptr_t)positions};
  must(run_program(program, addresses, (int64_t[]){0, 0, 2, 0, 2, 3}, 2, 5, 0) == 0, "a call");
  for (int i = 0; i < 5; i++)
    must(target[2 * i] == source[2 * positions[i] + 1] && target[2 * i + 1] == source[2 * positions[i]], "what is moved");
  must(run_program(program, addresses, (int64_t[]){1, 0, 2}, 1, 5, 0) != 0, "a range of no phase");
  free_program(program);
  for (int round = 0; round < 40 * NUM_ROUNDS; round++) {
    int64_t shown = round % 7 ? length : (int64_t)(next_number(state) % length);
    int64_t at = 4 + next_number(state) % (length - 4); /* what comes before says where functions are, which are believed */
    int64_t *exact = malloc(length * sizeof *exact);
    memcpy(exact, move, length * sizeof *exact);
    exact[at] = round % 3 ? (int64_t)(next_number(state) % 16) - 4 : (int64_t)next_number(state);
    exact = realloc(exact, shown * sizeof *exact + 1);
    Program *found = make_program(exact, shown);
    must(shown == length || !found, "what is cut off is no program");
    if (found) free_program(found);
    free(exact);
  }
}

static void *work(void *number) {
  uint64_t state = 88172645463325252u + (uint64_t)(intptr_t)number;
  random_structures(&state);
  programs(&state);
  return NULL;
}

int main(void) {
  pthread_t threads[NUM_THREADS];
  for (intptr_t i = 0; i < NUM_THREADS; i++) must(!pthread_create(&threads[i], NULL, work, (void *)i), "a thread");
  for (int i = 0; i < NUM_THREADS; i++) pthread_join(threads[i], NULL);
  hostile_structures();
  wide_structure();
  puts("right");
  return 0;
}
