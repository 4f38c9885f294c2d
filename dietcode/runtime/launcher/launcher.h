/* Runs the parallel loops of libraries for CPUs: on threads of its own, or on the team that PyTorch computes with.
 *
 * A library's code calls three functions through pointers, which `attach` fills in: `launch` runs a loop's tasks,
 * `alloc_workspace` and `free_workspace` give and take memory. `bind` ties one of its functions to a number of threads and
 * says whose they are. */
#ifndef DIETCODE_LAUNCHER_H
#define DIETCODE_LAUNCHER_H

#include <stdatomic.h>
#include <stdint.h>
#include <tvm/ffi/c_api.h>

enum { MAX_THREADS = 1024 };
enum { MOST_SLOW = 4 }; /* times as long as usual, which is what a single longer run counts for */

/* As TVM's c_backend_api.h has them. A loop is cut into as many tasks as the environment says. */
typedef struct {
  void *sync_handle;
  int32_t num_task;
} Environment;
typedef int (*Body)(int task, Environment *environment, void *data);

/* One loop of one call, on the caller's stack. */
typedef struct Job {
  Body body;
  void *data;
  Environment environment;
  atomic_int unclaimed;         /* tasks that nobody has started */
  atomic_int failed;
  _Atomic(TVMFFIObjectHandle) error;
  const void *caller;           /* an address that is the caller's thread's own */
  int num_own;                  /* tasks that the caller ran */
  int64_t posted, caller_done;  /* when the caller began, and when it had no task left, in nanoseconds */
  int64_t cpu_posted, cpu_done; /* the same in time that it computed, where that is asked for: not 0 */
  int64_t longest;              /* nanoseconds of the longest task that the caller ran */
  int caller_cpu;               /* -1 for the pool's, whose threads stay off it */
  atomic_int is_crowded;        /* whether another thread began on that CPU: of two threads one waits */
  /* of the pool */
  int limit;                    /* of running threads, up to which a worker may join */
  int num_threads;              /* of those that may run this job */
  int is_shared;                /* whether another call was in flight */
  _Atomic uint32_t attached;    /* workers that may still look at this job */
  struct Job *next;
  atomic_uchar claimed[MAX_THREADS];
} Job;

/* module.c */
int fail(const char *kind, const char *message);
int64_t now_nsecs(void);
int64_t cpu_nsecs(void); /* of this thread, without what others took */
int launch(Body body, void *data, int num_task);
void run_tasks(Job *job, int first); /* those that nobody has started, `first` before the others */

/* pool.c */
extern atomic_int num_cores;     /* as many threads of the pool run at once */
extern _Atomic int64_t last_end; /* of the last job */
int64_t pool_pays_from(int64_t now); /* nanoseconds of a loop on one thread, from which on the pool is faster */
int pool_is_awake(void);
void run_in_pool(Job *job);
int enter_host(int num_threads, int is_forced); /* whether the cores are free for the host's team */
void leave_host(int num_threads);

/* host.c */
int host_size(void); /* threads of the host's team, 0 where there is none */
int run_on_host(Job *job, int is_forced); /* whether the team ran it */

/* losses.c */
typedef struct {
  _Atomic int64_t lost, rest, rest_until; /* nanoseconds */
} Losses;
int is_resting(const Losses *team, int64_t now); /* whether it is left alone */
void note_loss(Losses *team, int64_t now, int64_t nsecs); /* of a run: how much longer it took than on one thread */

/* timings.c */
typedef struct {
  _Atomic int64_t mean, away, away_until; /* nanoseconds; how long, and until when, one thread runs the loop instead */
  atomic_int was_slow;                    /* than one thread, the last time */
} Several;

/* A loop whose function is called with some integers, which are a library's shape. */
typedef struct {
  _Atomic int64_t alone, last_alone; /* nanoseconds on one thread; when one ran it last */
  atomic_int is_measured;            /* whether one thread ran it; a guess else */
  atomic_int until_look, look_wait;  /* runs until one thread is tried, and from that time to the next */
  Several in_pool, on_host;
} Timing;
void begin_timing(Timing *timing);
void note_alone(Timing *timing, int64_t nsecs, int is_guess);
void note_several(Timing *timing, Several *several, int64_t nsecs, int64_t posted);
int pays(Several *several, int64_t alone, int64_t now);
int is_look(Timing *timing);
int num_tasks(int64_t alone, int num_threads, int num_parts);

/* workspace.c */
void *alloc_workspace(int device_type, int device, uint64_t num_bytes, int code, int bits);
int free_workspace(int device_type, int device, void *memory);

#endif
