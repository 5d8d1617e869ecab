#include "tests/testing/allocation_count.h"

#include <errno.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

// glibc's own, under the names that it keeps for this.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* block);
}

namespace sluice::testing {
namespace {

std::atomic<int64_t> g_live{0};
std::atomic<int64_t> g_peak{0};
std::atomic<int64_t> g_total{0};
std::atomic<int64_t> g_start{0};

void* Count(void* block) {
  if (block == nullptr) return nullptr;
  const auto bytes = static_cast<int64_t>(malloc_usable_size(block));
  g_total.fetch_add(bytes, std::memory_order_relaxed);
  const int64_t live =
      g_live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = g_peak.load(std::memory_order_relaxed);
  while (live > peak && !g_peak.compare_exchange_weak(peak, live)) {
  }
  return block;
}

void Uncount(void* block) {
  if (block == nullptr) return;
  g_live.fetch_sub(static_cast<int64_t>(malloc_usable_size(block)),
                   std::memory_order_relaxed);
}

}  // namespace

void StartAllocationCount() {
  g_total = 0;
  g_start = g_live.load();
  g_peak = g_live.load();
}

AllocationCount TakeAllocationCount() {
  return {static_cast<size_t>(g_total.load()),
          static_cast<size_t>(std::max<int64_t>(g_peak - g_start, 0))};
}

}  // namespace sluice::testing

extern "C" {

void* malloc(size_t size) {
  return sluice::testing::Count(__libc_malloc(size));
}

void* calloc(size_t count, size_t size) {
  return sluice::testing::Count(__libc_calloc(count, size));
}

void* realloc(void* block, size_t size) {
  sluice::testing::Uncount(block);
  return sluice::testing::Count(__libc_realloc(block, size));
}

void* memalign(size_t alignment, size_t size) {
  return sluice::testing::Count(__libc_memalign(alignment, size));
}

void* aligned_alloc(size_t alignment, size_t size) {
  return memalign(alignment, size);
}

int posix_memalign(void** block, size_t alignment, size_t size) {
  *block = memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}

void free(void* block) {
  sluice::testing::Uncount(block);
  __libc_free(block);
}

}  // extern "C"
