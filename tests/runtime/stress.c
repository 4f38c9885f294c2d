/* Many calls at once on the launcher's own pool; test_launcher.py compiles it with a sanitizer, beside the launcher. */
#define _DEFAULT_SOURCE
#include "launcher.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLERS = 6, CALLS = 400, EXTENT = 37 };

/* A loop over EXTENT elements, as generated code has it: each task takes a part. */
typedef struct {
  int sums[EXTENT]; /* not atomic: two tasks that share an element are a race */
  int nested, fails;
} Loop;

static int body(int task, Environment *environment, void *data) {
  Loop *loop = data;
  int part = (EXTENT + environment->num_task - 1) / environment->num_task;
  size_t size = 100 + 5000 * (size_t)(task % 3);
  char *workspace = alloc_workspace(1, 0, size, 2, 32);
  workspace[0] = workspace[size - 1] = (char)task;
  for (int i = task * part; i < (task + 1) * part && i < EXTENT; i++) loop->sums[i]++;
  if (loop->nested) {
    Loop inner = {{0}, 0, 0};
    if (launch(body, &inner, 4) != 0 || inner.sums[EXTENT - 1] != 1) abort();
  }
  free_workspace(1, 0, workspace);
  return loop->fails && task == 0 ? fail("ValueError", "as asked") : 0;
}

/* As a function of a library: its integer is a shape. */
static int run(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  Loop *loop = args[0].v_ptr;
  (void)self, (void)num_args, (void)result;
  return launch(body, loop, 0);
}

int __tvm_ffi_bind(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result);
static TVMFFIObjectHandle bound;

static void bind(void) {
  TVMFFIAny args[4] = {{0}}, result = {0};
  if (TVMFFIFunctionCreate(NULL, run, NULL, &args[0].v_ptr) != 0) abort();
  args[0].type_index = kTVMFFIFunction;
  for (int i = 1; i < 4; i++) args[i].type_index = kTVMFFIInt;
  args[1].v_int64 = args[3].v_int64 = 4; /* threads, and cores */
  if (__tvm_ffi_bind(NULL, args, 4, &result) != 0) abort();
  TVMFFIObjectDecRef(args[0].v_ptr);
  bound = result.v_ptr;
}

static int call_bound_with(Loop *loop, int shape) {
  TVMFFIAny args[2] = {{0}}, result = {0};
  args[0].type_index = kTVMFFIOpaquePtr;
  args[0].v_ptr = loop;
  args[1].type_index = kTVMFFIInt;
  args[1].v_int64 = shape;
  return TVMFFIFunctionCall(bound, args, 2, &result);
}

static void *call(void *number) {
  for (int i = 0; i < CALLS; i++) {
    Loop loop = {{0}, i % 7 == 0, i % 5 == 0};
    int shape = (i + (int)(intptr_t)number) % 5;
    int status = i % 2 ? call_bound_with(&loop, shape) : launch(body, &loop, 1 + shape);
    for (int k = 0; k < EXTENT; k++)
      if (loop.sums[k] != 1) abort();
    TVMFFIObjectHandle error = NULL;
    TVMFFIErrorMoveFromRaised(&error);
    if ((status != 0) != loop.fails || (error != NULL) != loop.fails) abort();
    if (error) TVMFFIObjectDecRef(error);
    if (i % 50 == 0) usleep(100); /* workers fall asleep */
  }
  return NULL;
}

int main(int count, char **words) {
  pthread_t callers[CALLERS];
  (void)words;
  num_cores = 4;
  bind();
  for (intptr_t i = 0; i < CALLERS; i++) pthread_create(&callers[i], NULL, call, (void *)i);
  for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
  if (count > 1) return puts("right") < 0; /* sanitizers of threads do not follow a fork */
  pid_t child = fork();
  if (child == 0) {
    call(0);
    _exit(0);
  }
  int status;
  if (waitpid(child, &status, 0) != child || status != 0) return 1;
  return puts("right") < 0;
}
