// What a warp does as a whole, and copies on their way: the functions of `instructions.py` as fibers do them.
//
// Fragments lie in lanes as "Matrix fragments for mma.m16n8k16" and "ldmatrix" of the PTX ISA have them: with
// group = lane / 4 and pair = lane % 4 a lane holds
//   rows[r]:     A[group + 8·(r & 1)][2·pair + 8·(r >> 1) + 0…1]     columns[r]: B[2·pair + 8·r + 0…1][group]
//   sums[r]:     D[group + 8·(r >> 1)][2·pair + (r & 1)]
#pragma once

namespace emulated {

// What lanes show each other; two, because one that goes on may show the next before all have seen the last.
struct Shown {
  uint address;
  float rows[4][2], columns[2][2];
};
STATE Shown shown[2][MAX_THREADS];
STATE unsigned char turn[MAX_THREADS];
STATE bool is_misplaced;
STATE uint bank_conflicts;  // matrices of which two rows are not read at once

// Shows something to the other lanes of the warp; from where they show theirs.
EMULATED const Shown* show(const Shown& own) {
  const unsigned t = current, at = turn[t] ^= 1;
  shown[at][t] = own;
  leave(AT_WARP);
  return &shown[at][t / WARP * WARP];
}

EMULATED bool is_placed(const void* place, uint bytes) {
  const bool fits = reinterpret_cast<uintptr_t>(place) % bytes == 0;
  is_misplaced |= !fits;
  return fits;
}

// Where a thread loads or stores a vector.
template <typename VECTOR>
inline VECTOR* vector(const void* place) {
  is_placed(place, sizeof(VECTOR));
  return static_cast<VECTOR*>(const_cast<void*>(place));
}

template <int COUNT, bool IS_TRANSPOSED>
inline void read_matrices(uint* to, uint from) {
  Shown own = {};
  own.address = from;
  const Shown* of = show(own);
  const unsigned lane = current % WARP;
  for (int i = 0; i < COUNT; ++i) {
    uint places = 0;  // of 16 bytes, of the 128 that shared memory gives at once
    for (int row = 0; row < 8; ++row) places |= 1u << (of[8 * i + row].address / 16 % 8);
    bank_conflicts += places != 0xff;
    unsigned short values[2];
    for (int half = 0; half < 2; ++half) {
      const unsigned element = 2 * (lane % 4) + half;
      const unsigned row = IS_TRANSPOSED ? element : lane / 4, column = IS_TRANSPOSED ? lane / 4 : element;
      const uint address = of[8 * i + row].address;
      if (address + 16 > SHARED_SIZE || !is_placed(dynamic_shared + address, 16)) {
        is_misplaced = true;
        return;
      }
      memcpy(&values[half], dynamic_shared + address + 2 * column, 2);
    }
    memcpy(&to[i], values, 4);
  }
}

EMULATED float widened(unsigned short bits, bool is_bfloat16) {
  float value;
  uint wide = static_cast<uint>(bits) << 16;
  if (!is_bfloat16) {  // by hand: without F16C a compiler calls a function of some hundred instructions
    wide = (bits & 0x7fffu) << 13;
    memcpy(&value, &wide, 4);
    value *= 0x1p112f;  // the exponents' biases are 15 and 127; exact, numbers below the least normal one too
    memcpy(&wide, &value, 4);
    if ((bits & 0x7c00u) == 0x7c00u) wide |= 0x7f800000u;
    wide |= (bits & 0x8000u) << 16;
  }
  memcpy(&value, &wide, 4);
  return value;
}

EMULATED void multiply(float* sums, const uint* rows, const uint* columns, bool is_bfloat16) {
  Shown own = {};
  for (int half = 0; half < 2; ++half) {
    for (int r = 0; r < 4; ++r) own.rows[r][half] = widened(rows[r] >> (16 * half), is_bfloat16);
    for (int r = 0; r < 2; ++r) own.columns[r][half] = widened(columns[r] >> (16 * half), is_bfloat16);
  }
  const Shown* of = show(own);
  const unsigned group = current % WARP / 4, pair = current % 4;
  for (int r = 0; r < 4; ++r) {
    const unsigned row = group + 8 * (r >> 1), column = 2 * pair + (r & 1);
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned of_pair = k % 8 / 2;
      sums[r] += of[row % 8 * 4 + of_pair].rows[row / 8 + 2 * (k / 8)][k % 2] *
                 of[column * 4 + of_pair].columns[k / 8][k % 2];
    }
  }
}

EMULATED void send(const Copy& copy) {
  Fiber& fiber = fibers[current];
  if (fiber.num_copies == MAX_COPIES) abort();
  fiber.copies[(fiber.first_copy + fiber.num_copies++) % MAX_COPIES] = copy;
}

// The copies of the oldest group.
EMULATED void receive() {
  Fiber& fiber = fibers[current];
  for (bool is_end = false; !is_end; --fiber.num_copies) {
    const Copy& copy = fiber.copies[fiber.first_copy++ % MAX_COPIES];
    is_end = copy.bytes == 0;
    if (copy.from == nullptr) {
      memset(copy.to, 0, copy.bytes);
    } else {
      memcpy(copy.to, copy.from, copy.bytes);
    }
  }
}

// What is there before the copy is done for certain is gone at once: it may be done at any time from here on.
EMULATED void begin_copy(uint to, const void* from, bool exists, int bytes) {
  char* place = dynamic_shared + to;
  if (to + bytes > SHARED_SIZE || !is_placed(place, bytes) || (exists && !is_placed(from, bytes))) {
    is_misplaced = true;
    return;
  }
  memset(place, NOTHING, bytes);
  send({place, exists ? static_cast<const char*>(from) : nullptr, bytes});
}

}  // namespace emulated

#ifdef EMULATOR
extern "C" uint bank_conflicts() { return emulated::bank_conflicts; }
#endif

static inline uint shared_address(const void* place) {
  return static_cast<const char*>(place) - emulated::dynamic_shared;
}
static inline float larger_or_nan(float a, float b) { return a > b || isnan(a) ? a : b; }
static inline float smaller_or_nan(float a, float b) { return a < b || isnan(a) ? a : b; }
static inline float __shfl_xor_sync(unsigned mask, float value, int distance) {
  emulated::Shown own = {};
  memcpy(&own.address, &value, sizeof(value));
  const emulated::Shown* of = emulated::show(own);
  memcpy(&value, &of[emulated::current % emulated::WARP ^ distance].address, sizeof(value));
  return value;
}
static inline void read_matrices_4(uint* to, uint from) { emulated::read_matrices<4, false>(to, from); }
static inline void read_matrices_2(uint* to, uint from) { emulated::read_matrices<2, false>(to, from); }
static inline void read_matrices_4_transposed(uint* to, uint from) { emulated::read_matrices<4, true>(to, from); }
static inline void read_matrices_2_transposed(uint* to, uint from) { emulated::read_matrices<2, true>(to, from); }
static inline void multiply_float16(float* sums, const uint* rows, const uint* columns) {
  emulated::multiply(sums, rows, columns, false);
}
static inline void multiply_bfloat16(float* sums, const uint* rows, const uint* columns) {
  emulated::multiply(sums, rows, columns, true);
}
static inline uint pack_float16(float low, float high) {
  const half pair[2] = {static_cast<half>(low), static_cast<half>(high)};
  uint bits;
  memcpy(&bits, pair, 4);
  return bits;
}
// To nearest, ties to even.
static inline uint rounded_bfloat16(float value) {
  uint bits;
  memcpy(&bits, &value, 4);
  return isnan(value) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static inline uint pack_bfloat16(float low, float high) {
  return rounded_bfloat16(low) | rounded_bfloat16(high) << 16;
}
static inline void copy_16(uint to, const void* from, bool exists) { emulated::begin_copy(to, from, exists, 16); }
static inline void copy_8(uint to, const void* from, bool exists) { emulated::begin_copy(to, from, exists, 8); }
static inline void copy_4(uint to, const void* from, bool exists) { emulated::begin_copy(to, from, exists, 4); }
static inline void end_copies() {
  static char nowhere;
  emulated::send({&nowhere, nullptr, 0});
  ++emulated::fibers[emulated::current].groups;
}
// Copies that are not waited for are never done.
template <int MAY_BE_ON_THEIR_WAY>
static inline void wait_for_copies() {
  int& groups = emulated::fibers[emulated::current].groups;
  for (; groups > MAY_BE_ON_THEIR_WAY; --groups) emulated::receive();
}
