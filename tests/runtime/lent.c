/* A worker that has no core of its own gets its caller's, which waits for it; test_launcher.py compiles it. */
#define _GNU_SOURCE
#include "launcher.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_USECS = 20000000 };
static _Thread_local int is_caller;
static atomic_int has_begun;
static int num_cpus, waits;

static cpu_set_t mask_of_this_thread(void) {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) abort();
  return mask;
}

static int cpus_of_this_thread(void) {
  cpu_set_t mask = mask_of_this_thread();
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

/* One task of each thread is long, the others have nothing to do: the worker's ends later than the caller's by less than a
 * quarter of it, and may run where it might before. */
enum { LONG_USECS = 400000, LATER_USECS = 40000, NUM_TASKS = 16 };
static atomic_int caller_is_done;

static int mostly_empty(int task, Environment *environment, void *data) {
  (void)environment;
  if (is_caller && task == 0) {
    for (int usecs = 0; usecs < PATIENCE_USECS && !has_begun; usecs += 10) usleep(10);
    usleep(LONG_USECS);
    caller_is_done = 1;
  }
  if (is_caller || has_begun) return 0;
  has_begun = 1;
  cpu_set_t before = mask_of_this_thread();
  for (int usecs = 0; usecs < PATIENCE_USECS && !caller_is_done; usecs += 100) usleep(100);
  for (int64_t until = now_nsecs() + 1000 * LATER_USECS; now_nsecs() < until && !*(int *)data;) {
    usleep(100);
    cpu_set_t now = mask_of_this_thread();
    *(int *)data = !CPU_EQUAL(&before, &now);
  }
  return 0;
}

int __tvm_ffi_bind(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result);

static int call_launch(void *found, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)args, (void)num_args, (void)result;
  return launch(mostly_empty, found, 0);
}

static int count_tasks(int task, Environment *environment, void *data) {
  (void)task;
  *(atomic_int *)data = environment->num_task;
  return 0;
}

static int call_counted(void *counted, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)args, (void)num_args, (void)result;
  return launch(count_tasks, counted, 0);
}

/* A call of a function on two threads, whose loops have so many parts. */
static void call_bound_to(TVMFFISafeCallType function, void *data, int64_t num_parts) {
  TVMFFIAny words[6], bound, result;
  memset(words, 0, sizeof words);
  memset(&bound, 0, sizeof bound);
  memset(&result, 0, sizeof result);
  words[0].type_index = kTVMFFIFunction;
  if (TVMFFIFunctionCreate(data, function, NULL, &words[0].v_ptr) != 0) abort();
  int64_t values[] = {2, 0, 2, 0, num_parts}; /* threads, the pool where it is faster, cores, sizes, parts */
  for (int i = 0; i < 5; i++) {
    words[i + 1].type_index = kTVMFFIInt;
    words[i + 1].v_int64 = values[i];
  }
  if (__tvm_ffi_bind(NULL, words, 6, &bound) != 0) abort();
  if (TVMFFIFunctionCall(bound.v_ptr, NULL, 0, &result) != 0) abort();
}

static int is_lent_early(void) {
  int found = 0;
  has_begun = 0;
  call_bound_to(call_launch, &found, NUM_TASKS);
  if (!has_begun) abort();
  return found;
}

/* Of 128 cores a loop has as many parts as there may be tasks, of more it has more. */
static int is_cut(int64_t num_parts) {
  atomic_int counted = 0;
  call_bound_to(call_counted, &counted, num_parts);
  return counted == MAX_THREADS;
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
  if (is_lent_early()) {
    fprintf(stderr, "the caller's CPU was lent to a worker that was not late\n");
    return 1;
  }
  if (!is_cut(MAX_THREADS) || !is_cut(4 * MAX_THREADS)) {
    fprintf(stderr, "a loop of many parts is not cut\n");
    return 1;
  }
  puts("right");
  return 0;
}
