// Enough of CUDA C++ to run generated device functions on a CPU, one block after the other, or one cluster of blocks.
//
// A thread of a block is a fiber. It runs until its warp or its block waits, in an order that the caller chooses:
// a value that is read before its barrier, or overwritten after too few, is then wrong in one of the orders.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

struct dim3 {
  unsigned x, y, z;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(8) ushort4 {
  unsigned short x, y, z, w;
};
struct alignas(4) ushort2 {
  unsigned short x, y;
};
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }

#define CUDART_INF_F INFINITY
typedef unsigned int uint;
typedef unsigned short ushort;
typedef _Float16 half;
struct alignas(4) half2 {
  half x, y;
};
static inline half __float2half_rn(float value) { return static_cast<half>(value); }
static inline float __half2float(half value) { return static_cast<float>(value); }
static inline float __ldg(const float* place) { return *place; }
static inline unsigned __float_as_uint(float value) {
  unsigned bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
template <typename T>
static inline T max(T a, T b) {
  return a < b ? b : a;
}
template <typename T>
static inline T min(T a, T b) {
  return b < a ? b : a;
}

#define __global__
#define __device__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) alignas(n)

// What is emulated is compiled once, to be fast, where EMULATOR is defined; generated code, to be compiled fast, calls it.
#ifdef EMULATOR
#define EMULATED
#define STATE
#else
#define EMULATED extern inline __attribute__((gnu_inline))
#define STATE extern
#endif

namespace emulated {

constexpr size_t STACK_BYTES = 64 << 10, MAX_SHARED = 228 << 10, GUARD = 4 << 10;
constexpr unsigned MAX_CLUSTER = 2, MAX_THREADS = 1024 * MAX_CLUSTER, WARP = 32, MAX_COPIES = 512;
constexpr size_t SHARED_SIZE = MAX_SHARED + GUARD;
constexpr unsigned char NOTHING = 0xff;  // in each byte: a NaN in every format
STATE dim3 thread_index, block_index, block_size, grid_size;

enum State { RUNS, AT_BARRIER, AT_WARP, ENDED, AT_PHASE, AT_CONSUMERS, AT_CLUSTER };
struct Copy {  // of one thread, on its way to shared memory; a mark without bytes ends a group
  char* to;
  const char* from;
  int bytes;
};
struct Fiber {
  ucontext_t context;
  void* place[5];
  bool has_begun;
  State state;
  Copy copies[MAX_COPIES];  // a ring
  unsigned first_copy, num_copies;
  int groups;
};

STATE void* scheduler[5];
STATE Fiber fibers[MAX_THREADS];
STATE char* stacks;
alignas(1024) STATE char shared_of[MAX_CLUSTER][SHARED_SIZE], async_shared_of[MAX_CLUSTER][SHARED_SIZE];
STATE char *dynamic_shared, *async_shared;  // of the current thread's block
STATE unsigned current, rank, asked_bytes;  // the thread, of all of a cluster; its block; and shared memory of a block
STATE unsigned cluster_size, first_block;
STATE unsigned moved, num_consumers;   // what threads that wait for phases may look at again; who meets without the others
EMULATED bool finish_a_copy();
STATE void (*body)(void**);
STATE void** arguments;

// __builtin_setjmp keeps no signal mask, which takes a system call; both may not be in one function.
[[noreturn]] __attribute__((noinline)) EMULATED void jump(void** place) { __builtin_longjmp(place, 1); }

// Back to the scheduler.
__attribute__((noinline)) EMULATED void leave(State state) {
  Fiber& fiber = fibers[current];
  fiber.state = state;
  if (__builtin_setjmp(fiber.place) == 0) jump(scheduler);
}

EMULATED void run_threads() {
  for (;;) {
    body(arguments);
    leave(ENDED);
  }
}

__attribute__((noinline)) EMULATED void enter(unsigned t) {
  Fiber& fiber = fibers[t];
  current = t;
  rank = t / block_size.x;
  thread_index = {t % block_size.x, 0, 0};
  block_index.x = first_block + rank;
  dynamic_shared = shared_of[rank], async_shared = async_shared_of[rank];
  if (__builtin_setjmp(scheduler) != 0) return;
  if (fiber.has_begun) jump(fiber.place);
  fiber.has_begun = true;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stacks + t * STACK_BYTES;
  fiber.context.uc_stack.ss_size = STACK_BYTES;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, run_threads, 0);
  setcontext(&fiber.context);
}

// The threads of a warp, forwards, backwards, or in a stride, each until it waits. Whether all met in the warp.
EMULATED bool run_warp(unsigned first, unsigned lanes, int order, unsigned round) {
  unsigned waiting = 0;
  for (unsigned i = 0; i < lanes; ++i) {
    unsigned lane = i;
    if (order == 1) lane = lanes - 1 - i;
    if (order == 2) lane = (i * 17 + round * 5) % lanes;  // 17 and a power of two share no divisor
    Fiber& fiber = fibers[first + lane];
    if (fiber.state == RUNS || fiber.state == AT_PHASE) enter(first + lane);
    waiting += fiber.state == AT_WARP;
  }
  if (waiting != lanes) return false;
  for (unsigned i = 0; i < lanes; ++i) fibers[first + i].state = RUNS;
  return true;
}

EMULATED bool release(unsigned first, unsigned count, State state) {
  for (unsigned t = first; t < first + count; ++t) {
    if (fibers[t].state == state) fibers[t].state = RUNS;
  }
  return true;
}

EMULATED unsigned count_at(unsigned first, unsigned count, State state) {
  unsigned found = 0;
  for (unsigned t = first; t < first + count; ++t) found += fibers[t].state == state;
  return found;
}

// Let the threads of a block go on that have all met, or its consumers. Whether there were any.
EMULATED bool pass_barriers(unsigned block) {
  const unsigned first = block * block_size.x, consumers = count_at(first, block_size.x, AT_CONSUMERS);
  if (consumers != 0 && consumers == num_consumers) return release(first, block_size.x, AT_CONSUMERS);
  return count_at(first, block_size.x, AT_BARRIER) == block_size.x && release(first, block_size.x, AT_BARRIER);
}

EMULATED bool pass_cluster_barrier() {
  const unsigned threads = block_size.x * cluster_size;
  return count_at(0, threads, AT_CLUSTER) == threads && release(0, threads, AT_CLUSTER);
}

EMULATED bool has_ended(unsigned block) {
  for (unsigned t = block * block_size.x; t < (block + 1) * block_size.x; ++t) {
    if (fibers[t].state != ENDED) return false;
  }
  return true;
}

// Warps from `first` to `end`, each until it waits; all of them once. Whether any went on.
EMULATED bool run_warps(unsigned first, unsigned end, int order, unsigned round, bool is_left_behind) {
  const unsigned threads = block_size.x * cluster_size, warps = end - first, before = moved;
  bool goes_on = false;
  for (unsigned i = 0; i < warps; ++i) {
    const unsigned warp = first + (order == 1 ? warps - 1 - i : order == 2 ? (i + round) % warps : i);
    const unsigned lanes = threads - warp * WARP < WARP ? threads - warp * WARP : WARP;
    if (is_left_behind && warp == 1) continue;
    while (run_warp(warp * WARP, lanes, order, round)) {
      goes_on = true;
      if (order == 2) break;
    }
  }
  return goes_on || moved != before;
}

// One cluster. In the orders 0 and 1 a warp runs to the block's barrier before another does, and a block as far as it
// comes before the other one does. In order 2 all warps run side by side, but for the second one: it runs when no
// other can, and no copy is on its way. Returns whether all threads met at the same barriers.
EMULATED bool run_cluster(int order) {
  const unsigned threads = block_size.x * cluster_size, warps = (threads + WARP - 1) / WARP;
  const unsigned warps_of_block = cluster_size == 1 ? warps : block_size.x / WARP;
  for (unsigned t = 0; t < threads; ++t) {
    fibers[t].state = RUNS;
    fibers[t].num_copies = fibers[t].groups = 0;
  }
  bool is_left_behind = order == 2;
  for (unsigned round = 0;; ++round) {
    bool goes_on = order == 2 && run_warps(0, warps, order, round, is_left_behind);
    for (unsigned i = 0; i < cluster_size && order != 2; ++i) {
      const unsigned block = order == 1 ? cluster_size - 1 - i : i, first = block * warps_of_block;
      bool passes;
      do {
        while (run_warps(first, first + warps_of_block, order, round, false)) goes_on = true;
        // A block alone passes when nothing is on its way any more, one of a cluster ahead of the other.
        passes = cluster_size > 1 && pass_barriers(block);
        goes_on = goes_on || passes;
      } while (passes);
    }
    const bool was_left_behind = is_left_behind;
    is_left_behind = order == 2;
    if (goes_on || finish_a_copy()) continue;
    if (was_left_behind) {
      is_left_behind = false;
      continue;
    }
    bool passes = pass_cluster_barrier(), all_ended = true;
    for (unsigned block = 0; block < cluster_size; ++block) passes = pass_barriers(block) || passes;
    for (unsigned block = 0; block < cluster_size; ++block) all_ended = all_ended && has_ended(block);
    if (!passes) return all_ended;
  }
}

EMULATED bool is_waiting_for_phase() {
  for (unsigned t = 0; t < block_size.x * cluster_size; ++t) {
    if (fibers[t].state == AT_PHASE) return true;
  }
  return false;
}

}  // namespace emulated

#define threadIdx emulated::thread_index
#define blockIdx emulated::block_index
#define blockDim emulated::block_size
#define gridDim emulated::grid_size
static inline void __syncthreads() { emulated::leave(emulated::AT_BARRIER); }
static inline void let_next_begin() {}
static inline void wait_for_previous() {}
static inline float read_written(const float* from) { return *from; }
static inline void __syncwarp() { emulated::leave(emulated::AT_WARP); }

#include "emulated_warp.h"

#include "emulated_warpgroup.h"

#include "emulated_bulk.h"

#ifdef COUNTS_BANKS
#include "emulated_banks.h"
#endif

// Launch one function; `order` is that of the threads, `shared` the bytes that the launch asks for. Returns 0,
// or 1 where threads left a barrier, 2 where they wrote behind the shared memory, 3 where an address is none, 4 where
// the grid is not whole clusters of so many blocks in x, or what was wrong with products of warpgroups.
#ifdef EMULATOR
extern "C" int emulate(void (*function)(void**), unsigned x, unsigned y, unsigned threads, unsigned shared,
                       void** arguments, int order, unsigned cluster) {
  using namespace emulated;
  grid_size = {x, y, 1};
  block_size = {threads, 1, 1};
  body = function;
  if (stacks == nullptr) stacks = static_cast<char*>(malloc(MAX_THREADS * STACK_BYTES));
  emulated::arguments = arguments;
  is_misplaced = false;
  wrong = NOTHING_WRONG;
  asked_bytes = shared;
  cluster_size = cluster;
  if (shared > MAX_SHARED || threads * cluster > MAX_THREADS) return 2;
  if (cluster < 1 || cluster > MAX_CLUSTER || x % cluster != 0) return 4;
  for (unsigned j = 0; j < y; ++j) {
    for (unsigned i = 0; i < x; i += cluster) {
      block_index = {i, j, 0};
      first_block = i;
      for (unsigned block = 0; block < cluster; ++block) memset(shared_of[block], NOTHING, shared + GUARD);
      begin_block_of_products(shared);
      begin_block_of_copies(order);
      if (!run_cluster(order)) {
        if (wrong == NOTHING_WRONG) wrong = is_waiting_for_phase() ? NEVER_OVER : 1;
        for (Fiber& fiber : fibers) fiber.has_begun = false;  // others begin where they begin, not where these wait
        return wrong;
      }
#ifdef COUNTS_BANKS
      end_counting();
#endif
      end_block_of_products();
      end_block_of_copies();
      if (wrong != NOTHING_WRONG) return wrong;
      for (unsigned k = 0; k < GUARD * cluster; ++k) {
        if (static_cast<unsigned char>(shared_of[k / GUARD][shared + k % GUARD]) != NOTHING) return 2;
      }
      if (is_misplaced) return 3;
    }
  }
  return 0;
}
#endif
