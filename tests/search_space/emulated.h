// Enough of CUDA C++ to run generated device functions on a CPU, one block after the other.
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

namespace emulated {

constexpr size_t STACK_BYTES = 64 << 10, MAX_SHARED = 228 << 10, GUARD = 4 << 10;
constexpr unsigned MAX_THREADS = 1024, WARP = 32, MAX_COPIES = 512;
constexpr unsigned char NOTHING = 0xff;  // in each byte: a NaN in every format
dim3 thread_index, block_index, block_size, grid_size;

enum State { RUNS, AT_BARRIER, AT_WARP, ENDED, AT_PHASE, AT_CONSUMERS };
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

void* scheduler[5];
Fiber fibers[MAX_THREADS];
char* stacks = static_cast<char*>(malloc(MAX_THREADS * STACK_BYTES));
alignas(1024) char dynamic_shared[MAX_SHARED + GUARD];
unsigned current, asked_bytes;  // the thread, and shared memory of a block
unsigned moved, num_consumers;   // what threads that wait for phases may look at again; who meets without the others
bool finish_a_copy();
void (*body)(void**);
void** arguments;

// __builtin_setjmp keeps no signal mask, which takes a system call; both may not be in one function.
[[noreturn]] __attribute__((noinline)) void jump(void** place) { __builtin_longjmp(place, 1); }

// Back to the scheduler.
__attribute__((noinline)) void leave(State state) {
  Fiber& fiber = fibers[current];
  fiber.state = state;
  if (__builtin_setjmp(fiber.place) == 0) jump(scheduler);
}

inline void run_threads() {
  for (;;) {
    body(arguments);
    leave(ENDED);
  }
}

__attribute__((noinline)) void enter(unsigned t) {
  Fiber& fiber = fibers[t];
  current = t;
  thread_index = {t, 0, 0};
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
inline bool run_warp(unsigned first, unsigned lanes, int order, unsigned round) {
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

// One block. In the orders 0 and 1 a warp runs to the block's barrier before another does, in order 2 they run
// side by side, but for the second one: it runs when no other can, and no copy is on its way. Returns whether all threads met at the same barriers.
inline bool run_block(int order) {
  const unsigned threads = block_size.x, warps = (threads + WARP - 1) / WARP;
  for (unsigned t = 0; t < threads; ++t) {
    fibers[t].state = RUNS;
    fibers[t].num_copies = fibers[t].groups = 0;
  }
  bool is_left_behind = order == 2;
  for (unsigned round = 0;; ++round) {
    bool goes_on = false;
    const unsigned before = moved;
    for (unsigned i = 0; i < warps; ++i) {
      const unsigned first = WARP * (order == 1 ? warps - 1 - i : order == 2 ? (i + round) % warps : i);
      const unsigned lanes = threads - first < WARP ? threads - first : WARP;
      if (is_left_behind && first == WARP) continue;
      while (run_warp(first, lanes, order, round)) {
        goes_on = true;
        if (order == 2) break;
      }
    }
    const bool was_left_behind = is_left_behind;
    is_left_behind = order == 2;
    if (goes_on || moved != before || finish_a_copy()) continue;
    if (was_left_behind) {
      is_left_behind = false;
      continue;
    }
    unsigned ended = 0, waiting = 0, consumers = 0;
    for (unsigned t = 0; t < threads; ++t) {
      consumers += fibers[t].state == AT_CONSUMERS;
      ended += fibers[t].state == ENDED;
      waiting += fibers[t].state == AT_BARRIER;
    }
    if (ended == threads) return true;
    if (consumers != 0) {
      if (consumers != num_consumers) return false;
      for (unsigned t = 0; t < threads; ++t) {
        if (fibers[t].state == AT_CONSUMERS) fibers[t].state = RUNS;
      }
      continue;
    }
    if (waiting != threads) return false;
    for (unsigned t = 0; t < threads; ++t) fibers[t].state = RUNS;
  }
}

inline bool is_waiting_for_phase() {
  for (unsigned t = 0; t < block_size.x; ++t) {
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
// or 1 where threads left a barrier, 2 where they wrote behind the shared memory, 3 where an address is none, or
// what was wrong with products of warpgroups.
extern "C" int emulate(void (*function)(void**), unsigned x, unsigned y, unsigned threads, unsigned shared,
                       void** arguments, int order) {
  using namespace emulated;
  grid_size = {x, y, 1};
  block_size = {threads, 1, 1};
  body = function;
  emulated::arguments = arguments;
  is_misplaced = false;
  wrong = NOTHING_WRONG;
  asked_bytes = shared;
  if (shared > MAX_SHARED) return 2;
  for (unsigned j = 0; j < y; ++j) {
    for (unsigned i = 0; i < x; ++i) {
      block_index = {i, j, 0};
      memset(dynamic_shared, NOTHING, shared + GUARD);
      begin_block_of_products(shared);
      begin_block_of_copies(order);
      if (!run_block(order)) {
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
      for (unsigned k = 0; k < GUARD; ++k) {
        if (static_cast<unsigned char>(dynamic_shared[shared + k]) != NOTHING) return 2;
      }
      if (is_misplaced) return 3;
    }
  }
  return 0;
}
