/* The threads of our own, one pool a process.
 *
 * A caller puts its job into a list, wakes workers, and claims tasks that nobody has started, as they do. So several calls
 * may be in flight, none waits for another, and a worker that gets no core in time costs nothing. */
#define _GNU_SOURCE
#include "launcher.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPIN_NSECS = 50000, WAKES = 3 };
static const uint32_t CALLER_SLEEPS = 1u << 31;

atomic_int num_cores;
_Atomic int64_t last_end;

/* The lock guards all of this; workers sleep on `generation`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Job *jobs;
static _Atomic uint32_t generation;
static pthread_t workers[MAX_THREADS];
static const Job *works_on[MAX_THREADS]; /* of each worker, an address and no more */
static int num_workers, max_workers, sleeping, running;
static _Atomic int64_t wake_nsecs = 5000; /* what waking one takes its caller, at first by experience */
static atomic_int awake;           /* workers that wait awake */
static cpu_set_t given; /* the workers' CPUs: those of the last caller without the one that it ran on */
static int left_out;

static long futex(_Atomic uint32_t *word, int operation, uint32_t value) {
  return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

/* Sleeps while the word has this value, at most so long. */
static void sleep_on(_Atomic uint32_t *word, uint32_t value, int64_t nsecs) {
  struct timespec most = {nsecs / 1000000000, nsecs % 1000000000};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &most, NULL, 0);
}

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("isb");
#endif
}

/* ---- Workers ---- */

static Job *next_job(void) {
  for (Job *job = jobs; job; job = job->next) {
    int num_attached = (int)(atomic_load(&job->attached) & ~CALLER_SLEEPS);
    if (running < job->limit && num_attached < job->num_threads - 1 && atomic_load(&job->unclaimed) > 0) return job;
  }
  return NULL;
}

/* Lets go of the lock, and wakes as many workers, or as many as sleep. */
static void unlock_and_wake(int count) {
  if (count > 0) atomic_fetch_add(&generation, 1); /* for those who wait awake, too */
  if (count > sleeping) count = sleeping;
  pthread_mutex_unlock(&lock);
  if (count <= 0) return;
  int64_t started = now_nsecs();
  long woken = futex(&generation, FUTEX_WAKE, (uint32_t)count);
  int64_t mean = wake_nsecs, nsecs = woken > 0 ? (now_nsecs() - started) / woken : mean;
  wake_nsecs += ((nsecs < MOST_SLOW * mean ? nsecs : MOST_SLOW * mean) - mean) / 8; /* the caller may lose its core in it */
}

/* Waits awake for a job, and returns since when there was none. Waking a worker that sleeps takes tens of microseconds, most
 * of them the caller's; where the last job came sooner than that the next one may, too. Elsewhere no worker waits awake: it
 * would take the core from the host program. */
static int64_t wait_awake(uint32_t seen, int64_t since) {
  int64_t gap = 0;
  atomic_fetch_add(&awake, 1);
  while (gap < SPIN_NSECS && atomic_load(&generation) == seen) {
    for (int i = 0; i < 32 && atomic_load(&generation) == seen; i++) pause_cpu();
    gap = now_nsecs() - since;
    if (atomic_load(&generation) == seen) sched_yield();
  }
  atomic_fetch_sub(&awake, 1);
  return gap;
}

static void *work(void *number) {
  int64_t idle_since = 0, gap = SPIN_NSECS; /* nanoseconds between the last two jobs */
  pthread_mutex_lock(&lock);
  for (;;) {
    Job *job = next_job();
    if (!job) {
      uint32_t seen = atomic_load(&generation);
      if (!idle_since) idle_since = now_nsecs();
      if (gap < SPIN_NSECS) {
        pthread_mutex_unlock(&lock);
        gap = wait_awake(seen, idle_since);
        pthread_mutex_lock(&lock);
      } else {
        sleeping++;
        pthread_mutex_unlock(&lock);
        futex(&generation, FUTEX_WAIT, seen);
        pthread_mutex_lock(&lock);
        sleeping--;
      }
      continue;
    }
    running++;
    atomic_fetch_add(&job->attached, 1);
    works_on[(intptr_t)number - 1] = job;
    if (idle_since) gap = job->posted - idle_since;
    idle_since = 0;
    unlock_and_wake(next_job() ? 2 : 0);
    int part = 1 + ((int)(intptr_t)number - 1) % (job->num_threads - 1);
    run_tasks(job, part * (job->environment.num_task / job->num_threads));
    /* The caller may return as soon as the last one is off: from here on the job is an address and no more. */
    if (atomic_fetch_sub(&job->attached, 1) == (CALLER_SLEEPS | 1)) futex(&job->attached, FUTEX_WAKE, 1);
    pthread_mutex_lock(&lock);
    works_on[(intptr_t)number - 1] = NULL;
    running--;
  }
  return NULL;
}

static void start_workers(int wanted) {
  sigset_t all, before;
  sigfillset(&all);
  if (wanted > max_workers) wanted = max_workers;
  while (num_workers < wanted) {
    pthread_t *worker = &workers[num_workers];
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the host program's threads */
    int failed = pthread_create(worker, NULL, work, (void *)(intptr_t)(num_workers + 1));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
      max_workers = num_workers; /* as many as the system gives */
      return;
    }
    pthread_detach(*worker);
    pthread_setname_np(*worker, "dietcode");
    pthread_setaffinity_np(*worker, sizeof given, &given);
    num_workers++;
  }
}

/* Keeps workers off the caller's CPU: the kernel would queue a woken worker behind the caller, and leave it there. Where
 * the caller is bound to that one CPU, by OpenMP perhaps, they stay where they are. */
static void leave_out_cpu(int cpu) {
  cpu_set_t mask;
  if (cpu < 0 || cpu >= CPU_SETSIZE || cpu == left_out) return;
  if (pthread_getaffinity_np(pthread_self(), sizeof mask, &mask) != 0) return;
  CPU_CLR(cpu, &mask);
  if (CPU_COUNT(&mask) == 0) return;
  for (int i = 0; i < num_workers; i++) pthread_setaffinity_np(workers[i], sizeof mask, &mask);
  given = mask;
  left_out = cpu;
}

/* ---- Callers ---- */

/* Moves a worker that is still busy with a job to the caller's CPU, which waits for it, and returns its number: another
 * program's thread may have its core, or half of it. */
static int lend_cpu(const Job *job) {
  int cpu = sched_getcpu(), lent_to = -1;
  cpu_set_t mask;
  if (cpu < 0 || cpu >= CPU_SETSIZE) return -1;
  CPU_ZERO(&mask);
  CPU_SET(cpu, &mask);
  pthread_mutex_lock(&lock);
  for (int i = 0; i < num_workers && lent_to < 0; i++) {
    if (works_on[i] != job) continue;
    pthread_setaffinity_np(workers[i], sizeof mask, &mask);
    lent_to = i;
  }
  pthread_mutex_unlock(&lock);
  return lent_to;
}

static void take_back(int worker) {
  pthread_mutex_lock(&lock);
  pthread_setaffinity_np(workers[worker], sizeof given, &given);
  pthread_mutex_unlock(&lock);
}

/* A worker that is busy for a quarter of the caller's longest task more than the caller has no core of its own. Tasks may be
 * empty: a loop has fewer parts than tasks where cutting it does not pay. */
static void wait_until_detached(Job *job) {
  int64_t until = job->caller_done + SPIN_NSECS, lend_at = until + job->longest / 4;
  int lent_to = -1;
  while (atomic_load(&job->attached) != 0) {
    for (int i = 0; i < 32 && atomic_load(&job->attached) != 0; i++) pause_cpu();
    int64_t now = now_nsecs();
    if (now < until) {
      sched_yield();
      continue;
    }
    if (now >= lend_at) {
      lent_to = lend_cpu(job);
      lend_at = INT64_MAX;
    }
    uint32_t seen = atomic_fetch_or(&job->attached, CALLER_SLEEPS) | CALLER_SLEEPS;
    if (seen != CALLER_SLEEPS) sleep_on(&job->attached, seen, lend_at - now);
    atomic_fetch_and(&job->attached, ~CALLER_SLEEPS);
  }
  if (lent_to >= 0) take_back(lent_to);
}

/* A worker that sleeps starts about as late again as its caller is done with waking it. Where calls follow each other at
 * once, it is woken for those that come, and waits for them awake. */
int64_t pool_pays_from(int64_t now) {
  return awake || now - last_end < SPIN_NSECS ? 0 : WAKES * wake_nsecs;
}

int pool_is_awake(void) { return awake > 0; }

void run_in_pool(Job *job) {
  int most = job->num_threads;
  pthread_mutex_lock(&lock);
  job->limit = most > num_cores ? most : num_cores;
  int helpers = job->limit - ++running;
  if (helpers > most - 1) helpers = most - 1;
  if (helpers > 0) {
    if (running == 1) leave_out_cpu(sched_getcpu());
    start_workers(helpers);
  }
  job->is_shared = jobs != NULL;
  job->next = jobs;
  jobs = job;
  unlock_and_wake(helpers < 2 ? helpers : 2); /* who wake the others */
  run_tasks(job, 0);
  pthread_mutex_lock(&lock);
  Job **link = &jobs;
  while (*link != job) link = &(*link)->next;
  *link = job->next;
  if (jobs) job->is_shared = 1;
  running--;
  last_end = job->caller_done;
  unlock_and_wake(next_job() ? 1 : 0); /* another call's, for which there was no core */
  wait_until_detached(job);
}

int enter_host(int num_threads, int is_forced) {
  pthread_mutex_lock(&lock);
  int is_free = running == 0 || is_forced;
  if (is_free) running += num_threads;
  pthread_mutex_unlock(&lock);
  return is_free;
}

void leave_host(int num_threads) {
  pthread_mutex_lock(&lock);
  running -= num_threads;
  unlock_and_wake(next_job() ? 1 : 0);
}

/* A forked child has none of the parent's threads. */
static void start_empty(void) {
  pthread_mutex_init(&lock, NULL);
  jobs = NULL;
  num_workers = sleeping = running = awake = 0;
  max_workers = MAX_THREADS - 1;
}

__attribute__((constructor)) static void initialize(void) {
  CPU_ZERO(&given);
  if (sched_getaffinity(0, sizeof given, &given) != 0) CPU_SET(0, &given);
  left_out = -1;
  num_cores = CPU_COUNT(&given);
  start_empty();
  pthread_atfork(NULL, NULL, start_empty);
}
