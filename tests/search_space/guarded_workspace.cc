// Loaded before TVM's runtime: workspaces are NaN, and end, or begin, at a page that may not be touched.

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kPage = 4096, kAlignment = 64;

// In the first page, before the forbidden one.
struct Header {
  size_t area_bytes, num_bytes;
};

std::atomic<bool> at_end{true};
std::atomic<long> num_workspaces{0}, num_bytes_taken{0}, num_bytes_held{0}, most_bytes_held{0};

size_t RoundUp(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

extern "C" {

void guard_at_end(int yes) { at_end = yes != 0; }

long guarded_workspaces() { return num_workspaces; }

long guarded_bytes() { return num_bytes_taken.exchange(0); }

// The most that was held at once: of tasks that follow each other, one's.
long guarded_bytes_at_once() { return most_bytes_held.exchange(0); }

void* TVMBackendAllocWorkspace(int, int, uint64_t num_bytes, int, int) {
  size_t size = RoundUp(num_bytes, kPage), area_bytes = size + 3 * kPage;
  void* area = mmap(nullptr, area_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) return nullptr;
  *static_cast<Header*>(area) = {area_bytes, num_bytes};
  char* first = static_cast<char*>(area) + 2 * kPage;
  memset(first, 0xFF, size);
  mprotect(first - kPage, kPage, PROT_NONE);
  mprotect(first + size, kPage, PROT_NONE);
  ++num_workspaces;
  num_bytes_taken += num_bytes;
  long held = num_bytes_held += num_bytes, most = most_bytes_held;
  while (held > most && !most_bytes_held.compare_exchange_weak(most, held)) {
  }
  return first + (at_end ? size - RoundUp(num_bytes, kAlignment) : 0);
}

int TVMBackendFreeWorkspace(int, int, void* workspace) {
  auto* bytes = static_cast<unsigned char*>(workspace);
  // It begins in the third page.
  auto* area = bytes - reinterpret_cast<uintptr_t>(workspace) % kPage - 2 * kPage;
  Header header = *reinterpret_cast<Header*>(area);
  num_bytes_held -= header.num_bytes;
  // What alignment leaves between the end and the page is as it was.
  for (size_t i = header.num_bytes; i % kAlignment; ++i)
    if (bytes[i] != 0xFF) abort();
  return munmap(area, header.area_bytes);
}
}
