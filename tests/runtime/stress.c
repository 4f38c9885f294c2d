/* Many calls at once on the launcher's own pool, and copies; test_launcher.py compiles it with a sanitizer, beside the launcher. */
#define _DEFAULT_SOURCE
#include "launcher.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static TVMFFIObjectHandle bind(TVMFFISafeCallType function, int team) {
  TVMFFIAny args[4] = {{0}}, result = {0};
  if (TVMFFIFunctionCreate(NULL, function, NULL, &args[0].v_ptr) != 0) abort();
  args[0].type_index = kTVMFFIFunction;
  for (int i = 1; i < 4; i++) args[i].type_index = kTVMFFIInt;
  args[1].v_int64 = args[3].v_int64 = 4; /* threads, and cores */
  args[2].v_int64 = team;
  if (__tvm_ffi_bind(NULL, args, 4, &result) != 0) abort();
  TVMFFIObjectDecRef(args[0].v_ptr);
  return result.v_ptr;
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

/* ---- Copies ---- */

enum { COPIES = 3000, MOST = 5 };
int __tvm_ffi_copy(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result);
static TVMFFIObjectHandle copies_bound;

static int draw(int below) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (int)((state >> 16) % (unsigned)below);
}

/* A tensor in memory that is no larger: its axes lie in any order, with gaps or the other way round. */
typedef struct {
  DLTensor tensor;
  int64_t shape[MOST], strides[MOST];
  char *memory;
} Drawn;

static void draw_tensor(Drawn *drawn, int ndim, const int64_t *shape, int size, int is_from) {
  int64_t step = 1, first = 0, last = 0, order[MOST];
  for (int axis = 0; axis < ndim; axis++) {
    int other = draw(axis + 1);
    order[axis] = order[other];
    order[other] = axis;
  }
  if (draw(3) == 0) /* rows first, as most are */
    for (int axis = 0; axis < ndim; axis++) order[axis] = ndim - 1 - axis;
  for (int i = 0; i < ndim; i++) {
    int64_t axis = order[i], extent = shape[axis];
    int is_repeated = is_from && draw(8) == 0, is_reversed = draw(6) == 0;
    drawn->shape[axis] = extent;
    drawn->strides[axis] = is_repeated ? 0 : is_reversed ? -step : step;
    if (extent > 0 && drawn->strides[axis] < 0) first -= step * (extent - 1);
    if (extent > 0 && drawn->strides[axis] > 0) last += step * (extent - 1);
    if (!is_repeated) step *= extent > 0 ? extent : 1;
    if (draw(3) == 0) step += draw(3);
  }
  size_t num_bytes = (size_t)(last - first + 1) * (size_t)size;
  drawn->memory = malloc(num_bytes);
  for (size_t i = 0; i < num_bytes; i++) drawn->memory[i] = (char)draw(256);
  drawn->tensor = (DLTensor){drawn->memory, {kDLCPU, 0}, ndim, {kDLUInt, (uint8_t)(8 * size), 1}, drawn->shape,
                             drawn->strides, (uint64_t)-first * (uint64_t)size};
}

static const char *element(const Drawn *drawn, const int64_t *at, int size) {
  int64_t offset = 0;
  for (int axis = 0; axis < drawn->tensor.ndim; axis++) offset += at[axis] * drawn->strides[axis];
  return drawn->memory + drawn->tensor.byte_offset + offset * size;
}

static int copied_right(const Drawn *to, const Drawn *from, int size) {
  int64_t at[MOST] = {0}, total = 1;
  for (int axis = 0; axis < to->tensor.ndim; axis++) total *= to->shape[axis];
  for (int64_t i = 0; i < total; i++) {
    int64_t rest = i;
    for (int axis = to->tensor.ndim; axis-- > 0; rest /= to->shape[axis]) at[axis] = rest % to->shape[axis];
    if (memcmp(element(to, at, size), element(from, at, size), (size_t)size) != 0) return 0;
  }
  return 1;
}

/* Tensors of any layouts, on as many threads as pay; some are of no element, of one, or of many lines. */
static void copy_all(void) {
  for (int i = 0; i < COPIES; i++) {
    int ndim = draw(MOST + 1), size = 1 << draw(4);
    int64_t shape[MOST];
    for (int axis = 0; axis < ndim; axis++) shape[axis] = i % 100 == 0 && ndim == 2 ? 200 : draw(40) ? 1 + draw(7) : 0;
    Drawn to, from;
    draw_tensor(&to, ndim, shape, size, 0);
    draw_tensor(&from, ndim, shape, size, 1);
    TVMFFIAny args[3] = {{0}}, result = {0};
    args[0].type_index = args[1].type_index = kTVMFFIDLTensorPtr;
    args[0].v_ptr = &to.tensor;
    args[1].v_ptr = &from.tensor;
    args[2].type_index = kTVMFFIInt;
    args[2].v_int64 = i % 7;
    if (TVMFFIFunctionCall(copies_bound, args, 3, &result) != 0 || !copied_right(&to, &from, size)) abort();
    free(to.memory);
    free(from.memory);
  }
}

int main(int count, char **words) {
  pthread_t callers[CALLERS];
  (void)words;
  num_cores = 4;
  bound = bind(run, 0);
  copies_bound = bind(__tvm_ffi_copy, 3); /* of the pool, also where one thread is faster */
  copy_all();
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
