// What the warps of a block touch in shared memory, where the text says so: see `counting` in emulation.py.
//
// Lanes run one after the other, so the n-th time that a lane is at a place of the text stands for the n-th time
// that its warp is there. A transaction gives one word of each of 32 banks; lanes share a word.
#pragma once
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace emulated {

constexpr unsigned BANKS = 32;
struct Touched {
  bool is_store;
  std::set<unsigned> words;
};
STATE std::map<std::tuple<unsigned, unsigned, unsigned>, Touched> touched;  // by warp, place of the text, and time
STATE std::map<std::pair<unsigned, unsigned>, unsigned> times;              // by thread and place of the text
STATE unsigned transactions[2], least[2];                                   // of loads, of stores

EMULATED void touch(unsigned place, bool is_store, unsigned first, unsigned words) {
  Touched& own = touched[{current / WARP, place, times[{current, place}]++}];
  own.is_store = is_store;
  for (unsigned i = 0; i < words; ++i) own.words.insert(first + i);
}

template <typename VECTOR, unsigned PLACE, bool IS_STORE>
inline VECTOR* counted(float* tiles, long long offset) {
  touch(PLACE, IS_STORE, static_cast<unsigned>(offset), sizeof(VECTOR) / sizeof(float));
  return vector<VECTOR>(tiles + offset);
}

template <unsigned PLACE, bool IS_STORE>
struct Words {
  float* tiles;
  float& operator[](long long offset) { return *counted<float, PLACE, IS_STORE>(tiles, offset); }
};

EMULATED void end_counting() {
  for (const auto& entry : touched) {
    const Touched& own = entry.second;
    unsigned of_bank[BANKS] = {}, most = 0;
    for (unsigned word : own.words) {
      const unsigned count = ++of_bank[word % BANKS];
      most = count > most ? count : most;
    }
    transactions[own.is_store] += most;
    least[own.is_store] += (own.words.size() + BANKS - 1) / BANKS;
  }
  touched.clear();
  times.clear();
}

}  // namespace emulated

#ifdef EMULATOR
extern "C" unsigned shared_transactions(int is_store) { return emulated::transactions[is_store]; }
extern "C" unsigned shared_least(int is_store) { return emulated::least[is_store]; }
#endif
