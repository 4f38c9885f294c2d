/* A worker that has no core of its own gets its caller's, which waits for it; test_launcher.py compiles it. */
#define _GNU_SOURCE
#include "launcher.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATIENCE_USECS = 20000000 };
static _Thread_local int is_caller;
static atomic_int has_begun;
static int num_cpus, waits;

static int cpus_of_this_thread(void) {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) abort();
  return CPU_COUNT(&mask);
}

/* The worker's task ends once it may run on one CPU alone; the caller's once the worker has its own. */
static int body(int task, Environment *environment, void *data) {
  (void)task, (void)environment;
  if (!is_caller) {
    has_begun = 1;
    *(int *)data = cpus_of_this_thread();
    for (int usecs = 0; waits && usecs < PATIENCE_USECS && *(int *)data != 1; usecs += 100) {
      usleep(100);
      *(int *)data = cpus_of_this_thread();
    }
    return 0;
  }
  for (int usecs = 0; usecs < PATIENCE_USECS && !has_begun; usecs += 10) usleep(10);
  return 0;
}

static int cpus_of_worker(int until_lent) {
  int found = 0;
  has_begun = 0;
  waits = until_lent;
  if (launch(body, &found, 2) != 0) abort();
  return found;
}

int main(void) {
  is_caller = 1;
  num_cpus = cpus_of_this_thread();
  int others = num_cpus > 1 ? num_cpus - 1 : 1;
  int at_first = cpus_of_worker(0), lent = cpus_of_worker(1), after = cpus_of_worker(0);
  if (at_first != others || lent != 1 || after != others) {
    fprintf(stderr, "CPUs of the worker: %d, lent %d, after %d, of %d\n", at_first, lent, after, num_cpus);
    return 1;
  }
  puts("right");
  return 0;
}
