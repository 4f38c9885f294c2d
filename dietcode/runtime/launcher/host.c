/* The host program's team of threads: PyTorch's, or OpenMP's. It is found at run time, and nothing is linked. */
#define _GNU_SOURCE
#include "launcher.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

static struct {
  /* PyTorch's stable interface, from 2.10 on */
  int (*torch_for)(int64_t begin, int64_t end, int64_t grain, void (*)(int64_t, int64_t, void *), void *);
  int (*torch_size)(uint32_t *);
  /* of an older PyTorch, or of another program */
  void (*openmp)(void (*)(void *), void *, unsigned num_threads, unsigned flags);
  int (*openmp_most)(void), (*openmp_index)(void);
} host;
static atomic_int is_found, is_forked;

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

int host_size(void) {
  uint32_t size = 0;
  if (is_forked) return 0; /* the team is the parent's, which neither PyTorch nor OpenMP knows */
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
  job->caller_cpu = sched_getcpu();
  if (host.torch_for) {
    host.torch_for(0, total, 1, torch_part, job);
  } else {
    host.openmp(openmp_part, job, 0, 0); /* for another size than the default libgomp starts its threads anew */
  }
  run_tasks(job, 0); /* what is left, where PyTorch failed */
  leave_host(job->num_threads);
  return 1;
}

static void note_fork(void) { is_forked = 1; }

__attribute__((constructor)) static void initialize(void) { pthread_atfork(NULL, NULL, note_fork); }
