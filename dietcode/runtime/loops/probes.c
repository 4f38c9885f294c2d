/* What the machine gives at most, on some threads: its rate of fused multiply-adds, and how fast it reads memory.
 *
 * Each vector width that a processor may have is compiled in, and the widest one that it has is run. */
#define _GNU_SOURCE
#include "loops.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

/* Two ports times a latency of four cycles, and some more; as many sums hide the latency of additions. */
#define CHAINS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
enum { NUM_CHAINS = 12 };

typedef struct {
  float *sums;       /* [NUM_CHAINS, lanes] */
  const float *data; /* [steps, NUM_CHAINS, lanes], or NULL for multiply-adds alone */
  int64_t steps, times;
  int core; /* that it runs on, -1 for any */
} Share;

/* KIND_peak: chain = 1.9 - chain * chain, steps * times. The map is chaotic, so that operands never settle, and each
 * chain begins elsewhere: chains that began alike were one chain to a compiler. KIND_read: chain += data. */
#define PROBES(KIND, TARGET, VECTOR, LANES, SET)                                                                \
  TARGET static void KIND##_peak(const Share *share) {                                                          \
    const VECTOR top = SET(1.9f);                                                                               \
    CHAINS(START_##KIND)                                                                                        \
    for (int64_t i = share->steps * share->times; i > 0; i--) { CHAINS(STEP_##KIND) }                           \
    CHAINS(END_##KIND)                                                                                          \
  }                                                                                                             \
  TARGET static void KIND##_read(const Share *share) {                                                          \
    CHAINS(ZERO_##KIND)                                                                                         \
    for (int64_t time = 0; time < share->times; time++) {                                                       \
      const float *data = share->data;                                                                          \
      for (int64_t i = 0; i < share->steps; i++, data += NUM_CHAINS * LANES) { CHAINS(READ_##KIND) }            \
    }                                                                                                           \
    CHAINS(END_##KIND)                                                                                          \
  }

#define ANYWHERE
typedef float Vector4 __attribute__((vector_size(16), aligned(4)));
#define SET4(x) ((Vector4){x, x, x, x})
#define START_four(i) Vector4 c##i = SET4(0.1f + 0.07f * i);
#define ZERO_four(i) Vector4 c##i = SET4(0.0f);
#define STEP_four(i) c##i = top - c##i * c##i;
#define READ_four(i) c##i += *(const Vector4 *)(data + 4 * i);
#define END_four(i) *(Vector4 *)(share->sums + 4 * i) = c##i;
PROBES(four, ANYWHERE, Vector4, 4, SET4)

#if defined(__x86_64__)
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,fma")))
#define START_eight(i) __m256 c##i = _mm256_set1_ps(0.1f + 0.07f * i);
#define ZERO_eight(i) __m256 c##i = _mm256_setzero_ps();
#define STEP_eight(i) c##i = _mm256_fnmadd_ps(c##i, c##i, top);
#define READ_eight(i) c##i = _mm256_add_ps(c##i, _mm256_loadu_ps(data + 8 * i));
#define END_eight(i) _mm256_storeu_ps(share->sums + 8 * i, c##i);
PROBES(eight, AVX2, __m256, 8, _mm256_set1_ps)
#define AVX512 __attribute__((target("avx512f")))
#define START_sixteen(i) __m512 c##i = _mm512_set1_ps(0.1f + 0.07f * i);
#define ZERO_sixteen(i) __m512 c##i = _mm512_setzero_ps();
#define STEP_sixteen(i) c##i = _mm512_fnmadd_ps(c##i, c##i, top);
#define READ_sixteen(i) c##i = _mm512_add_ps(c##i, _mm512_loadu_ps(data + 16 * i));
#define END_sixteen(i) _mm512_storeu_ps(share->sums + 16 * i, c##i);
PROBES(sixteen, AVX512, __m512, 16, _mm512_set1_ps)
#endif

int64_t probe_lanes(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return 16;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 8;
#endif
  return 4;
}

int64_t probe_chains(void) { return NUM_CHAINS; }

static void *probe_share(void *given) {
  const Share *share = given;
  if (share->core >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(share->core, &set);
    sched_setaffinity(0, sizeof set, &set); /* of this thread; where that is not allowed it runs anywhere */
  }
  switch (probe_lanes()) {
#if defined(__x86_64__)
  case 16: share->data ? sixteen_read(share) : sixteen_peak(share); break;
  case 8: share->data ? eight_read(share) : eight_peak(share); break;
#endif
  default: share->data ? four_read(share) : four_peak(share);
  }
  return NULL;
}

int probe(float *sums, const float *data, int64_t num_threads, int64_t steps, int64_t times) {
  int64_t lanes = probe_lanes(), step = NUM_CHAINS * lanes;
  pthread_t *threads = malloc(num_threads * sizeof *threads);
  Share *shares = malloc(num_threads * sizeof *shares);
  int problem = threads && shares ? 0 : ENOMEM;
  cpu_set_t cores;
  /* Threads that are begun together may be put on one core while another is idle: where all cores are asked for, each
   * gets its own. */
  int own = !sched_getaffinity(0, sizeof cores, &cores) && CPU_COUNT(&cores) == num_threads;
  int64_t begun = 0;
  for (int core = -1; !problem && begun < num_threads; begun++) {
    if (own)
      do core++;
      while (!CPU_ISSET(core, &cores));
    shares[begun] = (Share){.sums = sums + begun * step, .data = data ? data + begun * steps * step : NULL,
                            .steps = steps, .times = times, .core = core};
    problem = pthread_create(&threads[begun], NULL, probe_share, &shares[begun]);
    if (problem) break;
  }
  for (int64_t i = 0; i < begun; i++) pthread_join(threads[i], NULL);
  free(shares);
  free(threads);
  return problem;
}
