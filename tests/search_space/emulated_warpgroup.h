// What a warpgroup does as a whole: the functions of `warpgroup_instructions.py` as fibers do them.
//
// Products are on their way from `end_products` until they are waited for. They read shared memory as its
// asynchronous proxy shows it, which is what was there when threads last published it, by descriptors as "Matrix
// Descriptor Format" of the PTX ISA has them; accumulators lie in lanes as those of m16n8k16 do, 16 rows in each
// warp. What a descriptor, an order of calls or an overwritten tile makes wrong is remembered, and told at the end.
#pragma once

namespace emulated {

constexpr unsigned WARPGROUP = 128, MAX_PRODUCTS = 1024, MAX_LOGGED = 1 << 14;

enum Wrong {
  NOTHING_WRONG = 0,
  BAD_DESCRIPTOR = 10,   // what no tile is described by
  OTHER_DESCRIPTOR = 11, // not the one that the warpgroup's other threads gave
  NO_FENCE = 12,
  OVERWRITTEN = 13,      // shared memory that products on their way read
  NOT_AWAITED = 14,
  NO_BARRIER = 20,       // at that address, or overwritten
  NOT_SHOWN = 21,
  TOO_MANY_ARRIVALS = 22,
  BAD_BOX = 23,
  COPIES_LEFT = 24,      // that nobody waited for, or bytes that nobody copied
  BAD_REGISTERS = 25,
  NEVER_OVER = 26,
  BLOCK_GONE = 27,       // whose shared memory is used by another
  NO_SUCH_BLOCK = 28,    // in the cluster
};
STATE int wrong;

struct Product {
  float* sums;
  unsigned long long rows, columns;
  bool is_rows_transposed, is_columns_transposed, is_bfloat16;
  int count;     // of columns
  uint checked;  // of what was there at first
  bool ends_group;
};
struct Products {
  Product on_way[MAX_PRODUCTS];
  unsigned num, logged;
  int groups;
  bool is_fenced;
};
STATE Products products[MAX_THREADS];
struct Logged {
  unsigned long long rows, columns;
};
STATE Logged logs[MAX_THREADS / WARPGROUP][MAX_LOGGED];
STATE unsigned num_logged[MAX_THREADS / WARPGROUP];

EMULATED void begin_block_of_products(unsigned shared) {
  for (unsigned block = 0; block < cluster_size; ++block) memset(async_shared_of[block], NOTHING, shared + GUARD);
  for (unsigned t = 0; t < block_size.x * cluster_size; ++t) {
    Products& own = products[t];
    own.num = own.logged = own.groups = own.is_fenced = 0;
  }
  for (auto& num : num_logged) num = 0;
}

EMULATED void end_block_of_products() {
  for (unsigned t = 0; t < block_size.x * cluster_size; ++t) {
    if (products[t].num != 0 && wrong == NOTHING_WRONG) wrong = NOT_AWAITED;
  }
}

// An operand as a descriptor has it.
struct Operand {
  uint start, leading, stride, log_bytes, mask;  // the bytes of a line, and a mask of its chunks
  bool is_transposed, is_bad;
};

EMULATED Operand operand_of(unsigned long long descriptor, bool is_transposed) {
  const uint start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4;
  const uint stride = (descriptor >> 32 & 0x3fff) << 4, mode = descriptor >> 62, base = descriptor >> 49 & 7;
  const uint other_bits = descriptor >> 14 & 3 | descriptor >> 30 & 3 | descriptor >> 46 & 7 | descriptor >> 52 & 0x3ff;
  const uint bytes = mode == 0 ? 0 : 256 >> mode;
  // A pattern is eight lines, and begins at a multiple of its size: a descriptor may begin within its first line.
  const uint within = mode == 0 ? 0 : start % (8 * bytes);
  const bool is_bad = mode == 0 || base != 0 || other_bits != 0 || (is_transposed ? within != 0 : within + 32 > bytes);
  return {start, leading, stride, 8 - mode, bytes / 16 - 1, is_transposed, is_bad};
}

// Of one element of an operand: a row (column) of up to 256, and a step of 16.
EMULATED ushort described(const char* shared, const Operand& own, unsigned line, unsigned step) {
  uint address = own.start;
  if (own.is_transposed) {
    const uint log_lines = own.log_bytes - 1;
    address += (line >> log_lines) * own.leading + (line & ((1u << log_lines) - 1)) * 2 + step / 8 * own.stride +
               (step % 8 << own.log_bytes);
  } else {
    address += line / 8 * own.stride + (line % 8 << own.log_bytes) + step * 2;
  }
  address ^= (address >> 7 & own.mask) << 4;
  if (own.is_bad || address + 2 > MAX_SHARED) {
    wrong = BAD_DESCRIPTOR;
    return 0xffff;
  }
  ushort value;
  memcpy(&value, shared + address, 2);
  return value;
}

// Of what one lane reads, a number that depends on each element.
EMULATED uint checked(const char* shared, const Product& one) {
  const unsigned own = current % WARPGROUP, group = own % WARP / 4, first = own / WARP * 16;
  const Operand rows = operand_of(one.rows, one.is_rows_transposed);
  const Operand columns = operand_of(one.columns, one.is_columns_transposed);
  uint found = 1;
  for (unsigned step = 0; step < 16; ++step) {
    for (unsigned half = 0; half < 2; ++half) {
      found = found * 31 + described(shared, rows, first + group + 8 * half, step);
    }
    // Each lane of a row's four looks at other columns.
    for (unsigned column = own % 4; column < unsigned(one.count); column += 4) {
      found = found * 31 + described(shared, columns, column, step);
    }
  }
  return found;
}

EMULATED void finish_product(const Product& one) {
  const unsigned own = current % WARPGROUP, group = own % WARP / 4, pair = own % 4, first = own / WARP * 16;
  if (checked(dynamic_shared, one) != one.checked && wrong == NOTHING_WRONG) wrong = OVERWRITTEN;
  const Operand of_rows = operand_of(one.rows, one.is_rows_transposed);
  const Operand of_columns = operand_of(one.columns, one.is_columns_transposed);
  float rows[2][16];
  for (unsigned half = 0; half < 2; ++half) {
    for (unsigned step = 0; step < 16; ++step) {
      const ushort bits = described(async_shared, of_rows, first + group + 8 * half, step);
      rows[half][step] = widened(bits, one.is_bfloat16);
    }
  }
  for (int part = 0; part < one.count / 8; ++part) {
    for (unsigned of_pair = 0; of_pair < 2; ++of_pair) {
      const unsigned column = 8 * part + 2 * pair + of_pair;
      for (unsigned step = 0; step < 16; ++step) {
        const ushort bits = described(async_shared, of_columns, column, step);
        const float value = widened(bits, one.is_bfloat16);
        for (unsigned half = 0; half < 2; ++half) {
          one.sums[4 * part + 2 * half + of_pair] += rows[half][step] * value;
        }
      }
    }
  }
}

template <int COLUMNS, bool IS_BFLOAT16, int IS_ROWS_TRANSPOSED, int IS_COLUMNS_TRANSPOSED>
inline void multiply_warpgroup(float* sums, unsigned long long rows, unsigned long long columns) {
  Products& own = products[current];
  if (!own.is_fenced) wrong = NO_FENCE;
  if (own.num == MAX_PRODUCTS || own.logged == MAX_LOGGED) abort();
  const unsigned group = current / WARPGROUP, at = own.logged++;
  if (at == num_logged[group]) logs[group][num_logged[group]++] = {rows, columns};
  if (logs[group][at].rows != rows || logs[group][at].columns != columns) wrong = OTHER_DESCRIPTOR;
  Product& one = own.on_way[own.num++];
  one = {sums, rows, columns, IS_ROWS_TRANSPOSED != 0, IS_COLUMNS_TRANSPOSED != 0, IS_BFLOAT16, COLUMNS, 0, false};
  one.checked = checked(async_shared, one);
}

}  // namespace emulated

static inline int same_in_warp(int value) { return value; }
static inline void publish_copies() {
  memcpy(emulated::async_shared, emulated::dynamic_shared, emulated::asked_bytes);
}
static inline void begin_products() { emulated::products[emulated::current].is_fenced = true; }
static inline void end_products() {
  emulated::Products& own = emulated::products[emulated::current];
  if (own.num > 0) own.on_way[own.num - 1].ends_group = true;
  own.is_fenced = false;
  ++own.groups;
}
template <int MAY_BE_ON_THEIR_WAY>
static inline void wait_for_products() {
  emulated::Products& own = emulated::products[emulated::current];
  unsigned done = 0;
  for (; own.groups > MAY_BE_ON_THEIR_WAY; --own.groups) {
    for (bool is_end = false; !is_end && done < own.num; ++done) {
      emulated::finish_product(own.on_way[done]);
      is_end = own.on_way[done].ends_group;
    }
  }
  for (unsigned i = done; i < own.num; ++i) own.on_way[i - done] = own.on_way[i];
  own.num -= done;
}
template <int COUNT>
static inline void hold_sums(float*) {}
