/* The host program's team of threads: PyTorch's, or OpenMP's. It is found at run time, and nothing is linked. */
#define _GNU_SOURCE
#include "launcher.h"

#include <dlfcn.h>
#include <pthread.h>

enum { MEMORY = 16, PART_LOST = 4, TRIAL = 16 }; /* rests; of the time, by delays; runs after a rest */
static const int64_t FIRST_REST_NSECS = 20000000, MAX_REST_NSECS = 10000000000;
static const int64_t MOST_LOST_NSECS = 8000000, ONE_DELAY_NSECS = 4000000; /* by delays; that one delay counts for */

static struct {
  /* PyTorch's stable interface, from 2.10 on */
  int (*torch_for)(int64_t begin, int64_t end, int64_t grain, void (*)(int64_t, int64_t, void *), void *);
  int (*torch_size)(uint32_t *);
  /* of an older PyTorch, or of another program */
  void (*openmp)(void (*)(void *), void *, unsigned num_threads, unsigned flags);
  int (*openmp_most)(void), (*openmp_index)(void);
} host;
static atomic_int is_found, is_forked;
static _Atomic int64_t rest, rest_until, lost, last_late; /* nanoseconds */
static atomic_int trial; /* runs that are left of it */

static void find_host(void) {
  static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&finding);
  void *torch = is_found ? NULL : dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch) {
    *(void **)&host.torch_for = dlsym(torch, "torch_parallel_for");
    *(void **)&host.torch_size = dlsym(torch, "torch_get_num_threads");
    dlclose(torch);
  }
  if (!is_found) {
    *(void **)&host.openmp = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    *(void **)&host.openmp_most = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    *(void **)&host.openmp_index = dlsym(RTLD_DEFAULT, "omp_get_thread_num");
    if (!host.torch_size) host.torch_for = NULL;
    is_found = host.torch_for || (host.openmp && host.openmp_most && host.openmp_index);
  }
  pthread_mutex_unlock(&finding);
}

int host_size(int64_t now, int is_forced) {
  uint32_t size = 0;
  if (is_forked) return 0; /* the team is the parent's, which neither PyTorch nor OpenMP knows */
  if (now < rest_until && !is_forced) return 0;
  if (!is_found) find_host();
  if (!is_found) return 0;
  if (host.torch_for) return host.torch_size(&size) == 0 ? (int)size : 0;
  return host.openmp_most();
}

static void torch_part(int64_t begin, int64_t end, void *job) {
  (void)end; /* who comes first takes what is there */
  run_tasks(job, (int)begin);
}

static void openmp_part(void *data) {
  Job *job = data;
  run_tasks(job, host.openmp_index() % job->num_threads * (job->environment.num_task / job->num_threads));
}

int run_on_host(Job *job, int is_forced) {
  int total = job->environment.num_task;
  if (!enter_host(job->num_threads, is_forced)) return 0;
  if (host.torch_for) {
    host.torch_for(0, total, 1, torch_part, job);
  } else {
    host.openmp(openmp_part, job, 0, 0); /* for another size than the default libgomp starts its threads anew */
  }
  run_tasks(job, 0); /* what is left, where PyTorch failed */
  leave_host(job->num_threads);
  if (trial > 0) trial--;
  return 1;
}

/* OpenMP waits for every thread of a team, which takes milliseconds where one has lost its core or is queued behind the
 * caller. It is left alone where that takes more than a part of the time: now and then a core is lost to anybody, and the
 * pool would take turns with a team that waits awake for its host's next loop. It is left alone for twice as long as last
 * time where that is not long ago; one delay is enough in its first runs after it. */
void note_late(int64_t now, int64_t delay) {
  int64_t last = rest;
  int64_t before = lost - (now - last_late) / PART_LOST;
  lost = (before > 0 ? before : 0) + (delay < ONE_DELAY_NSECS ? delay : ONE_DELAY_NSECS);
  last_late = now;
  if (lost < MOST_LOST_NSECS && trial <= 0) return;
  lost = 0;
  trial = TRIAL;
  int64_t next = now - rest_until < MEMORY * last ? 2 * last : FIRST_REST_NSECS;
  rest = next < MAX_REST_NSECS ? next : MAX_REST_NSECS;
  rest_until = now + rest;
}

static void note_fork(void) { is_forked = 1; }

__attribute__((constructor)) static void initialize(void) { pthread_atfork(NULL, NULL, note_fork); }
