// Enough of CUDA C++ to run generated device functions on a CPU, one block after the other.
//
// A thread of a block is a fiber. It runs until the block's next barrier, in an order that the caller chooses:
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

constexpr size_t STACK_BYTES = 64 << 10;
constexpr unsigned MAX_THREADS = 1024;
dim3 thread_index, block_index, block_size, grid_size;

struct Fiber {
  ucontext_t context;
  bool has_ended;
};

ucontext_t scheduler;
Fiber fibers[MAX_THREADS];
char* stacks = static_cast<char*>(malloc(MAX_THREADS * STACK_BYTES));
unsigned current;
void (*body)(void**);
void** arguments;

inline void run_thread() {
  body(arguments);
  fibers[current].has_ended = true;
  swapcontext(&fibers[current].context, &scheduler);
}

inline void wait_for_block() { swapcontext(&fibers[current].context, &scheduler); }

// One block: rounds from barrier to barrier. Returns whether all threads met at the same barriers.
inline bool run_block(int order) {
  const unsigned threads = block_size.x;
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& fiber = fibers[t];
    fiber.has_ended = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stacks + t * STACK_BYTES;
    fiber.context.uc_stack.ss_size = STACK_BYTES;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, run_thread, 0);
  }
  for (unsigned round = 0;; ++round) {
    unsigned ended = 0;
    for (unsigned i = 0; i < threads; ++i) {
      // Forwards, backwards, or in strides that differ from round to round.
      unsigned t = i;
      if (order == 1) t = threads - 1 - i;
      if (order == 2) t = (i * 17 + round * 5) % threads;  // 17 and a power of two share no divisor
      current = t;
      thread_index = {t, 0, 0};
      swapcontext(&scheduler, &fibers[t].context);
      ended += fibers[t].has_ended;
    }
    if (ended == threads) return true;
    if (ended) return false;
  }
}

}  // namespace emulated

#define threadIdx emulated::thread_index
#define blockIdx emulated::block_index
#define blockDim emulated::block_size
#define gridDim emulated::grid_size
static inline void __syncthreads() { emulated::wait_for_block(); }

// Launch one function; `order` is that of the threads. Returns 0, or 1 where threads left a barrier.
extern "C" int emulate(void (*function)(void**), unsigned x, unsigned y, unsigned threads, void** arguments,
                       int order) {
  using namespace emulated;
  grid_size = {x, y, 1};
  block_size = {threads, 1, 1};
  body = function;
  emulated::arguments = arguments;
  for (unsigned j = 0; j < y; ++j) {
    for (unsigned i = 0; i < x; ++i) {
      block_index = {i, j, 0};
      if (!run_block(order)) return 1;
    }
  }
  return 0;
}
