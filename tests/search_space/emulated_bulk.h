// Bulk copies of tensors, and the barriers that count them: the functions of `bulk_instructions.py`.
//
// A copy is on its way from the call that begins it. In order 0 it is done at once, in the others when nothing
// else can go on, the oldest or the newest first: what is read before its barrier, or overwritten after too few,
// is then wrong in one of the orders. Barriers count arrivals and bytes as "mbarrier" of the PTX ISA has it; boxes
// lie in shared memory as "Swizzling Modes" has them, and are zero outside of the tensor. What is copied to several
// blocks of a cluster is a copy of its own to each. Memory of a block that has ended is nobody's.
#pragma once
#include <initializer_list>

#include "emulated_maps.h"

struct CUtensorMap;
#define __grid_constant__

namespace emulated {

constexpr unsigned MAX_BARRIERS = 64, MAX_BOXES = 4096, BARRIER_BYTES = 8, BLOCK_REGISTERS = 64 << 10;
constexpr unsigned long long BARRIER_MARK = 0x72656972726162ull;

struct Barrier {
  uint address;
  unsigned arrivals, pending, phases;  // that end a phase, that it lacks, that are over
  long long bytes;
  bool is_shown;
};
struct Box {
  EmulatedMap map;
  unsigned block;  // that it is copied to
  uint to, barrier;
  long long at[MAP_AXES];
};
STATE Barrier barriers[MAX_CLUSTER][MAX_BARRIERS];
STATE Box boxes[MAX_BOXES];
STATE unsigned num_barriers[MAX_CLUSTER], num_boxes, registers_of[MAX_THREADS];
STATE int order_of_block;

EMULATED void begin_block_of_copies(int order) {
  num_boxes = 0;
  for (unsigned& count : num_barriers) count = 0;
  order_of_block = order;
  memset(registers_of, 0, sizeof(registers_of));
}

EMULATED void blame(int what) {
  if (wrong == NOTHING_WRONG) wrong = what;
}

EMULATED void end_block_of_copies() {
  if (num_boxes != 0) blame(COPIES_LEFT);
  for (unsigned block = 0; block < cluster_size; ++block) {
    for (unsigned i = 0; i < num_barriers[block]; ++i) {
      if (barriers[block][i].bytes != 0) blame(COPIES_LEFT);
    }
    // Either no thread changes its registers, or all do, to no more than there are.
    unsigned long long total = 0;
    unsigned changed = 0;
    for (unsigned t = block * block_size.x; t < (block + 1) * block_size.x; ++t) {
      total += registers_of[t], changed += registers_of[t] != 0;
    }
    if (changed != 0 && (changed != block_size.x || total > BLOCK_REGISTERS)) blame(BAD_REGISTERS);
  }
}

// The barrier at an address of a block; what it holds is written to shared memory, where others must not write.
EMULATED Barrier* barrier_at(unsigned block, uint address) {
  if (block >= cluster_size) return blame(NO_SUCH_BLOCK), nullptr;
  if (has_ended(block)) return blame(BLOCK_GONE), nullptr;
  for (unsigned i = 0; i < num_barriers[block]; ++i) {
    if (barriers[block][i].address != address) continue;
    if (memcmp(shared_of[block] + address, &BARRIER_MARK, BARRIER_BYTES) != 0) break;
    return &barriers[block][i];
  }
  blame(NO_BARRIER);
  return nullptr;
}

EMULATED void end_phase_if_complete(Barrier& own) {
  ++moved;
  if (own.pending != 0 || own.bytes != 0) return;
  own.pending = own.arrivals;
  ++own.phases;
}

EMULATED void arrive_at(unsigned block, uint address, long long bytes) {
  Barrier* own = barrier_at(block, address);
  if (own == nullptr) return;
  if (block != rank && !own->is_shown) return blame(NOT_SHOWN);
  if (own->pending == 0) return blame(TOO_MANY_ARRIVALS);
  own->bytes += bytes;
  --own->pending;
  end_phase_if_complete(*own);
}

EMULATED void copy_box(const Box& box) {
  const EmulatedMap& map = box.map;
  const uint mask = (1u << map.swizzle) - 1;
  uint offset = 0;
  for (uint k = 0; k < (map.axes > 2 ? map.box[2] : 1); ++k) {
    for (uint j = 0; j < (map.axes > 1 ? map.box[1] : 1); ++j) {
      for (uint i = 0; i < map.box[0]; ++i, offset += map.itemsize) {
        const long long at[MAP_AXES] = {box.at[0] + i, box.at[1] + j, box.at[2] + k};
        const char* from = reinterpret_cast<const char*>(map.address);
        bool exists = true;
        for (uint axis = 0; axis < map.axes; ++axis) {
          exists = exists && at[axis] >= 0 && at[axis] < static_cast<long long>(map.extents[axis]);
          from += at[axis] * static_cast<long long>(map.strides[axis]);
        }
        uint to = box.to + offset;
        to ^= (to >> 7 & mask) << 4;
        for (char* image : {shared_of[box.block], async_shared_of[box.block]}) {
          if (exists) memcpy(image + to, from, map.itemsize);
          if (!exists) memset(image + to, 0, map.itemsize);
        }
      }
    }
  }
  Barrier* own = barrier_at(box.block, box.barrier);
  if (own == nullptr) return;
  own->bytes -= static_cast<long long>(offset);
  end_phase_if_complete(*own);
}

// Whether a copy was on its way; it is done now.
EMULATED bool finish_a_copy() {
  if (num_boxes == 0) return false;
  const unsigned which = order_of_block == 1 ? 0 : num_boxes - 1;
  const Box box = boxes[which];
  for (unsigned i = which + 1; i < num_boxes; ++i) boxes[i - 1] = boxes[i];
  --num_boxes;
  copy_box(box);
  return true;
}

EMULATED void begin_box_to(unsigned block, const CUtensorMap& map, uint axes, uint to, uint barrier, long long a,
                         long long b, long long c) {
  Box box = {{}, block, to, barrier, {a, b, c}};
  memcpy(&box.map, &map, sizeof(box.map));
  if (box.map.mark != MAP_MARK || box.map.axes != axes) return blame(BAD_BOX);
  uint bytes = box.map.itemsize;
  for (uint axis = 0; axis < axes; ++axis) bytes *= box.map.box[axis];
  if (to % 128 != 0 || to + bytes > asked_bytes) return blame(BAD_BOX);
  Barrier* own = barrier_at(block, barrier);
  if (own == nullptr) return;
  if (!own->is_shown) return blame(NOT_SHOWN);
  if (num_boxes == MAX_BOXES) abort();
  ++moved;
  boxes[num_boxes++] = box;
  if (order_of_block == 0) finish_a_copy();
}

EMULATED void begin_box(unsigned blocks, const CUtensorMap& map, uint axes, uint to, uint barrier, long long a,
                      long long b, long long c) {
  for (unsigned block = 0; blocks >> block != 0; ++block) {
    if (blocks >> block & 1) begin_box_to(block, map, axes, to, barrier, a, b, c);
  }
}

EMULATED void change_registers(unsigned count, bool gives) {
  const unsigned first = BLOCK_REGISTERS / block_size.x / 8 * 8;
  if (count % 8 != 0 || count < 24 || count > 256 || (gives ? count > first : count < first)) blame(BAD_REGISTERS);
  registers_of[current] = count;
}

}  // namespace emulated

template <int ARRIVALS>
static inline void make_barrier(uint address) {
  using namespace emulated;
  unsigned& count = num_barriers[rank];
  if (count == MAX_BARRIERS || address % BARRIER_BYTES != 0 || address + BARRIER_BYTES > asked_bytes) abort();
  memcpy(dynamic_shared + address, &BARRIER_MARK, BARRIER_BYTES);
  barriers[rank][count++] = {address, ARRIVALS, ARRIVALS, 0, 0, false};
}
static inline void show_barriers() {
  using namespace emulated;
  for (unsigned i = 0; i < num_barriers[rank]; ++i) barriers[rank][i].is_shown = true;
}
static inline void prefetch_map(const CUtensorMap&) {}
static inline void arrive(uint barrier) { emulated::arrive_at(emulated::rank, barrier, 0); }
static inline void arrive_in_cluster(uint barrier, int block) { emulated::arrive_at(block, barrier, 0); }
static inline void meet_cluster() { emulated::leave(emulated::AT_CLUSTER); }
static inline int blocks_of_grid() { return emulated::grid_size.x; }
template <int BYTES>
static inline void arrive_and_expect(uint barrier) {
  emulated::arrive_at(emulated::rank, barrier, BYTES);
}
static inline void wait_for_phase(uint barrier, int parity) {
  for (;;) {
    const emulated::Barrier* own = emulated::barrier_at(emulated::rank, barrier);
    if (own == nullptr || int(own->phases & 1) != parity) break;
    emulated::leave(emulated::AT_PHASE);
  }
  ++emulated::moved;
}
template <int KEPT>
static inline void give_registers() {
  emulated::change_registers(KEPT, true);
}
template <int TAKEN>
static inline void take_registers() {
  emulated::change_registers(TAKEN, false);
}
template <int THREADS>
static inline void meet_consumers() {
  emulated::num_consumers = THREADS;
  emulated::leave(emulated::AT_CONSUMERS);
}
static inline void copy_box_2(const CUtensorMap& map, uint to, uint barrier, int a, int b) {
  emulated::begin_box(1u << emulated::rank, map, 2, to, barrier, a, b, 0);
}
static inline void copy_box_3(const CUtensorMap& map, uint to, uint barrier, int a, int b, int c) {
  emulated::begin_box(1u << emulated::rank, map, 3, to, barrier, a, b, c);
}
template <int MASK>
static inline void copy_box_2_to_all(const CUtensorMap& map, uint to, uint barrier, int a, int b) {
  emulated::begin_box(MASK, map, 2, to, barrier, a, b, 0);
}
template <int MASK>
static inline void copy_box_3_to_all(const CUtensorMap& map, uint to, uint barrier, int a, int b, int c) {
  emulated::begin_box(MASK, map, 3, to, barrier, a, b, c);
}

// As the driver has it.
#ifdef EMULATOR
extern "C" int encode_map(void* to, int type, uint32_t axes, void* address, const uint64_t* extents,
                          const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                          int swizzle, int promotion, int fill) {
  return encode_emulated_map(to, type, axes, address, extents, strides, box, steps, interleave, swizzle, promotion,
                             fill);
}
#endif
