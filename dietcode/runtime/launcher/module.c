/* What a library's code calls, and what hosts call: functions of a module of tvm-ffi. */
#define _GNU_SOURCE
#include "launcher.h"

#include <dlfcn.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum { OWN, AUTO, HOST, POOL } Team; /* as `bind` says */

enum { NUM_TIMINGS = 512, SMALL_NSECS = 4000 }; /* small: no thread pays, awake or not */
enum { FOLLOW_NSECS = 50000, PAUSE_NSECS = 5000000 }; /* a call that follows the last one at once; one after a pause */
enum { BURST_NSECS = 20000000, FOLLOW_COLD_NSECS = 1000000 }; /* just after a pause the caller's code is slow, too */
enum { COLD_NSECS = 1000000 }; /* after a pause, in which how long a loop takes says nothing of those that follow */

typedef struct {
  TVMFFIObjectHandle function;
  int num_threads;
  Team team;
  uint64_t uncounted; /* a bit for each of its integers that says nothing of how long it takes */
  int num_parts;      /* iterations of its loops, of which a task has some */
  _Atomic uint64_t keys[NUM_TIMINGS]; /* of what the timings are of, 0 for nothing */
  Timing timings[NUM_TIMINGS];
} Binding;

/* Of the call that this thread makes: its binding, and a digest of its integers. */
static _Thread_local Binding *current;
static _Thread_local uint64_t current_shape;
static _Thread_local int inside; /* whether this thread runs a task */
static Losses pool_losses, host_losses;
/* Of this thread's calls: when the last one ended, whether they follow a pause in which the thread slept, and its clocks
 * after the last pause. */
static _Thread_local struct {
  int64_t end;
  int is_burst;
  int64_t wall, cpu;
} calls;

static int64_t read_clock(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t now_nsecs(void) { return read_clock(CLOCK_MONOTONIC); }
int64_t cpu_nsecs(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

int fail(const char *kind, const char *message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

/* ---- What a library's code calls ---- */

/* A thread begins with the same task each time: what that one reads is in its core's cache. */
void run_tasks(Job *job, int first) {
  int total = job->environment.num_task, before = inside, is_caller = job->caller == &inside;
  int64_t began = is_caller ? now_nsecs() : 0;
  if (!is_caller && job->caller_cpu >= 0 && sched_getcpu() == job->caller_cpu) job->is_crowded = 1;
  inside = 1;
  for (int i = 0; i < total && atomic_load(&job->unclaimed) > 0; i++) {
    int task = (first + i) % total;
    if (atomic_load(&job->claimed[task]) || atomic_exchange(&job->claimed[task], 1)) continue;
    atomic_fetch_sub(&job->unclaimed, 1);
    int status = job->body(task, &job->environment, job->data);
    if (is_caller) {
      int64_t now = now_nsecs();
      if (now - began > job->longest) job->longest = now - began;
      began = now;
      job->num_own++;
    }
    if (status == 0) continue;
    TVMFFIObjectHandle error = NULL, none = NULL;
    TVMFFIErrorMoveFromRaised(&error); /* it is this thread's */
    if (error && !atomic_compare_exchange_strong(&job->error, &none, error)) TVMFFIObjectDecRef(error);
    job->failed = 1;
  }
  inside = before;
  if (!is_caller || job->caller_done) return;
  job->caller_done = now_nsecs();
  if (job->cpu_posted) job->cpu_done = cpu_nsecs();
}

static int status_of(const Job *job) {
  if (!job->failed) return 0;
  if (!job->error) return fail("RuntimeError", "a task failed");
  TVMFFIErrorSetRaised(job->error);
  TVMFFIObjectDecRef(job->error);
  return -1;
}

static uint64_t digest(uint64_t before, uint64_t value) { return (before ^ value) * 0x9E3779B97F4A7C15u; }

static Timing *timing_of(Binding *binding, Body body) {
  uint64_t key = digest(current_shape, (uint64_t)(uintptr_t)body) | 1;
  Timing *timing = &binding->timings[key >> 55];
  if (atomic_exchange(&binding->keys[key >> 55], key) != key) begin_timing(timing);
  return timing;
}

static int64_t note_run(Timing *timing, const Job *job, int on_host, int is_cold) {
  int64_t now = now_nsecs(), nsecs = now - job->posted;
  int64_t computed = job->cpu_posted ? job->cpu_done - job->cpu_posted : job->caller_done - job->posted;
  if (job->num_own) note_alone(timing, computed * job->environment.num_task / job->num_own, 1);
  if (is_cold || job->is_shared) return now; /* what a call takes from another is no loss */
  note_several(timing, on_host ? &timing->on_host : &timing->in_pool, nsecs, job->posted);
  Losses *losses = on_host ? &host_losses : &pool_losses;
  if (job->is_crowded) note_loss(losses, now, nsecs / job->num_threads); /* of a core that has nothing to do */
  else if (timing->alone != INT64_MAX) note_loss(losses, now, nsecs - timing->alone);
  return now;
}

/* Whether this thread has slept since its last call, but for the calls that have followed each other at once since then. The
 * host's team sleeps then too, and the kernel likes to wake it on the caller's core, where it waits until the caller is done;
 * it leaves it there. The pool's threads stay off that core. */
static int is_burst(int64_t now) {
  int64_t gap = now - calls.end;
  if (gap < (now - calls.wall < BURST_NSECS ? FOLLOW_COLD_NSECS : FOLLOW_NSECS)) return calls.is_burst;
  if (gap < PAUSE_NSECS && calls.wall) return calls.is_burst = 0;
  int64_t cpu = cpu_nsecs(), computed = cpu - calls.cpu - (calls.end - calls.wall); /* in the pause */
  calls.is_burst = calls.wall && computed < gap / 2;
  calls.wall = now;
  calls.cpu = cpu;
  return calls.is_burst;
}

/* Whether several threads run a loop, of the host's team where `size` is not 0. Just after a pause they do: what waking
 * them took says nothing of the calls that follow, which find them awake. */
static int runs_on_several(Timing *timing, int size, int64_t posted, int is_cold) {
  int64_t pays_from = size ? 0 : pool_pays_from(posted);
  if (timing->alone < (pays_from > SMALL_NSECS ? pays_from : SMALL_NSECS)) return 0;
  if (!size && is_resting(&pool_losses, posted)) return 0;
  if (is_cold) return 1;
  return !is_look(timing) && (size || pays(&timing->in_pool, timing->alone, posted));
}

int launch(Body body, void *data, int num_task) {
  Team team = current ? current->team : OWN;
  int total = num_task > 0 ? num_task : current ? current->num_threads : num_cores;
  if (total > MAX_THREADS) total = MAX_THREADS;
  int64_t posted = now_nsecs();
  Environment alone = {NULL, 1};
  int size = inside || team == OWN || team == POOL ? 0 : host_size();
  if (inside || total <= 1 || size == 1) return body(0, &alone, data);
  Timing *timing = current && team < HOST ? timing_of(current, body) : NULL;
  int is_cold = timing && is_burst(posted) && posted - calls.wall < COLD_NSECS;
  if (timing) {
    int is_left = size && (calls.is_burst || is_resting(&host_losses, posted) || !pays(&timing->on_host, timing->alone, posted));
    if (is_left) size = 0;
    if (!runs_on_several(timing, size, posted, is_cold)) {
      int status = body(0, &alone, data);
      last_end = now_nsecs();
      if (!is_cold) note_alone(timing, last_end - posted, 0);
      calls.end = timing->last_alone = last_end;
      return status;
    }
  }
  if (size && total > size) total = size;
  int num_threads = total;
  if (timing && num_task <= 0) total = num_tasks(timing->alone, total, current->num_parts);
  Job job;
  memset(&job, 0, offsetof(Job, claimed));
  memset(job.claimed, 0, total);
  job.body = body;
  job.data = data;
  job.environment.num_task = job.unclaimed = total;
  job.num_threads = num_threads;
  job.caller = &inside;
  job.caller_cpu = -1;
  job.posted = posted;
  if (timing && timing->alone == INT64_MAX) job.cpu_posted = cpu_nsecs(); /* whoever else has the cores now */
  int on_host = size && run_on_host(&job, team == HOST);
  if (!on_host) run_in_pool(&job);
  if (timing) calls.end = note_run(timing, &job, on_host, is_cold);
  return status_of(&job);
}

/* ---- What hosts call ---- */

static const char *text(const TVMFFIAny *value) {
  if (value->type_index == kTVMFFIRawStr) return value->v_c_str;
  if (value->type_index == kTVMFFISmallStr) return value->v_bytes;
  if (value->type_index != kTVMFFIStr) return NULL;
  return ((const TVMFFIByteArray *)((const char *)value->v_obj + sizeof(TVMFFIObject)))->data;
}

/* attach(path): the library of this path, which is loaded already, runs its loops here from now on. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_attach(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)self, (void)result;
  static const struct {
    const char *name;
    void *function;
  } pointers[] = {{"__TVMBackendParallelLaunch", (void *)launch},
                  {"__TVMBackendAllocWorkspace", (void *)alloc_workspace},
                  {"__TVMBackendFreeWorkspace", (void *)free_workspace}};
  const char *path = num_args == 1 ? text(&args[0]) : NULL;
  if (!path) return fail("TypeError", "attach: takes the path of a library");
  void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return fail("ValueError", "attach: no library of this path is loaded");
  for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++) {
    void **pointer = dlsym(library, pointers[i].name); /* a library has those that its code needs */
    if (pointer) *pointer = pointers[i].function;
  }
  dlclose(library);
  return 0;
}

static int call_bound(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  Binding *before = current;
  uint64_t shape_before = current_shape;
  current = self;
  current_shape = 0;
  uint64_t uncounted = current->uncounted;
  for (int i = 0; i < num_args; i++) {
    if (args[i].type_index != kTVMFFIInt) continue;
    if (!(uncounted & 1)) current_shape = digest(current_shape, (uint64_t)args[i].v_int64);
    uncounted >>= 1;
  }
  int status = TVMFFIFunctionCall(current->function, (TVMFFIAny *)args, num_args, result);
  current = before;
  current_shape = shape_before;
  return status;
}

static void free_binding(void *self) {
  TVMFFIObjectDecRef(((Binding *)self)->function);
  free(self);
}

/* bind(function, num_threads, team, num_cores, uncounted, num_parts): the function, whose loops run on at most so many
 * threads of a team. 0 is the own pool and 1 the host's team where it comes in time, both where they are faster than one
 * thread; 2 is the host's team and 3 the pool in any case. However many calls there are, no more than `num_cores` threads of
 * the pool run; 0 leaves that as it is, at first the cores that the process may use. Calls whose integers differ only where
 * `uncounted` has a bit, the lowest for the first, count as of one shape; its loops have `num_parts` iterations. Both are 0
 * where they are left out: all count, and nothing is known. */
TVM_FFI_DLL_EXPORT int __tvm_ffi_bind(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)self;
  int is_typed = num_args >= 4 && num_args <= 6 && args[0].type_index == kTVMFFIFunction;
  for (int i = 1; is_typed && i < num_args; i++) is_typed = args[i].type_index == kTVMFFIInt;
  if (!is_typed) return fail("TypeError", "bind: takes a function and three to five integers");
  int64_t num_threads = args[1].v_int64, team = args[2].v_int64, cores = args[3].v_int64;
  if (num_threads < 1 || team < OWN || team > POOL || cores < 0)
    return fail("ValueError", "bind: threads are 1 or more, cores 0 or more, a team is 0 to 3");
  Binding *binding = calloc(1, sizeof *binding);
  if (!binding) return fail("MemoryError", "no memory for a binding");
  binding->function = args[0].v_obj;
  binding->num_threads = num_threads < MAX_THREADS ? (int)num_threads : MAX_THREADS;
  binding->team = (Team)team;
  binding->uncounted = num_args > 4 ? (uint64_t)args[4].v_int64 : 0;
  int64_t num_parts = num_args > 5 ? args[5].v_int64 : 0;
  binding->num_parts = num_parts < 0 ? 0 : num_parts < MAX_THREADS ? (int)num_parts : MAX_THREADS;
  if (cores) num_cores = cores < MAX_THREADS ? (int)cores : MAX_THREADS;
  TVMFFIObjectIncRef(binding->function);
  if (TVMFFIFunctionCreate(binding, call_bound, free_binding, &result->v_ptr) != 0) {
    free_binding(binding);
    return -1;
  }
  result->type_index = kTVMFFIFunction;
  result->zero_padding = 0;
  return 0;
}
