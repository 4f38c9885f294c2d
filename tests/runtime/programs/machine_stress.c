/* One machine, several threads: each has workplaces of its own, and gets what it should. Says "right".
 *
 * The file that it is given is integers: how many of a machine and these, of its program and these, and of cases; of each
 * case the number of instances, of objects, of words and these, of words that come out and these. */
#include "machine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_THREADS = 4, NUM_ROUNDS = 60, MAX_CASES = 64 };

typedef struct {
  int64_t num_instances, num_objects, num_words, num_results;
  const int64_t *words, *results;
} Case;

static Machine *machine;
static Case cases[MAX_CASES];
static int64_t num_cases;

static void must(int is_so, const char *what) {
  if (is_so) return;
  fprintf(stderr, "wrong: %s\n", what);
  exit(1);
}

/* In memory that is exactly as large as it has to be, so that a sanitizer sees whatever is past it. */
static int64_t *exactly(const int64_t *data, int64_t count) {
  int64_t *own = malloc(count * sizeof *own + !count);
  memcpy(own, data, count * sizeof *own);
  return own;
}

static void call(Workplace *w, const Case *one, int64_t max_steps) {
  int64_t *words = exactly(one->words, one->num_words);
  Input input = {words, one->num_instances, one->num_objects, NULL, 0, NULL};
  must(run_machine(w, &input, INT64_C(1) << 30, max_steps, one->num_instances % 2) == 0, "a call");
  free(words);
  if (max_steps < 1000) {
    must(w->ending == NO_STEPS || w->ending == DONE, "a call that is cut off");
    return;
  }
  must(w->ending == DONE && w->num_words == one->num_results, "how a call ends");
  size_t size = one->num_results * sizeof *one->results;
  must(size == 0 || memcmp(w->output_room.data, one->results, size) == 0, "what comes out");
}

static void *work(void *number) {
  uint64_t state = 88172645463325252u + (uint64_t)(intptr_t)number;
  Workplace *w = make_workplace(machine);
  must(w != NULL, "a workplace");
  for (int round = 0; round < NUM_ROUNDS; round++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    call(w, &cases[state % num_cases], round % 5 == 4 ? (int64_t)(state % 999) : INT64_C(1) << 40);
    if (round % 20 != 19) continue;
    free_workplace(w);
    w = make_workplace(machine);
    must(w != NULL, "another workplace");
  }
  free_workplace(w);
  return NULL;
}

static int64_t *read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  must(file && fseek(file, 0, SEEK_END) == 0, "a file");
  long size = ftell(file);
  int64_t *data = malloc(size);
  rewind(file);
  must(fread(data, 1, size, file) == (size_t)size, "all of a file");
  fclose(file);
  return data;
}

int main(int argc, char **argv) {
  must(argc == 2, "one file");
  int64_t *data = read_file(argv[1]), *at = data;
  int64_t *description = at + 1, length = *at;
  at += 1 + length;
  int64_t *program = at + 1, program_length = *at;
  at += 1 + program_length;
  machine = make_machine(description, length, make_program(program, program_length));
  must(machine != NULL, "a machine");
  num_cases = *at++;
  must(num_cases > 0 && num_cases <= MAX_CASES, "cases");
  for (int64_t i = 0; i < num_cases; i++) {
    Case *one = &cases[i];
    one->num_instances = *at++;
    one->num_objects = *at++;
    one->num_words = *at++;
    one->words = at;
    at += one->num_words;
    one->num_results = *at++;
    one->results = at;
    at += one->num_results;
  }
  pthread_t threads[NUM_THREADS];
  for (intptr_t i = 0; i < NUM_THREADS; i++) must(!pthread_create(&threads[i], NULL, work, (void *)i), "a thread");
  for (int i = 0; i < NUM_THREADS; i++) pthread_join(threads[i], NULL);
  free_machine(machine);
  free(data);
  puts("right");
  return 0;
}
