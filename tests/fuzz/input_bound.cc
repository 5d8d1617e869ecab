// What one input may cost, for every target: linked with each, between
// libFuzzer and LLVMFuzzerTestOneInput. Executed edges, bytes asked of malloc
// and bytes held at once are counted and bounded by a constant and a factor of
// the input's size; above, the process aborts and libFuzzer keeps the input.
// Edges are those of C++ code: the tokenizers in Rust show in the bytes alone.
// Without AddressSanitizer, which has the hooks of malloc, edges alone count.
#include "tests/fuzz/input_bound.h"

#ifdef SLUICE_ASAN
#include <sanitizer/allocator_interface.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// Of a target: -D in CMakeLists.txt. A factor is per byte of input.
#ifndef SLUICE_FUZZ_EDGES
#define SLUICE_FUZZ_EDGES 20000
#endif
#ifndef SLUICE_FUZZ_EDGES_CONSTANT
#define SLUICE_FUZZ_EDGES_CONSTANT 16000000
#endif
#ifndef SLUICE_FUZZ_BYTES
#define SLUICE_FUZZ_BYTES 4096
#endif
#ifndef SLUICE_FUZZ_BYTES_CONSTANT
#define SLUICE_FUZZ_BYTES_CONSTANT 16000000
#endif

#define SLUICE_UNCOUNTED __attribute__((no_sanitize("all", "coverage")))

namespace sluice::fuzz {
size_t g_passes = 1;
}  // namespace sluice::fuzz

namespace {

struct Cost {
  int64_t edges = 0;
  int64_t asked = 0;  // bytes, in all
  int64_t held = 0;   // bytes, at once, above those at the start
};

thread_local Cost t_cost;
int64_t g_live = 0;
int64_t g_start = 0;

#ifdef SLUICE_ASAN
SLUICE_UNCOUNTED void OnMalloc(const volatile void*, size_t size) {
  const auto bytes = static_cast<int64_t>(size);
  const int64_t live =
      __atomic_add_fetch(&g_live, bytes, __ATOMIC_RELAXED) - g_start;
  t_cost.asked += bytes;
  if (live > t_cost.held) t_cost.held = live;
}

SLUICE_UNCOUNTED void OnFree(const volatile void* block) {
  if (block == nullptr) return;
  const size_t size =
      __sanitizer_get_allocated_size(const_cast<const void*>(block));
  __atomic_sub_fetch(&g_live, static_cast<int64_t>(size), __ATOMIC_RELAXED);
}

void CountBytes() {
  static const bool counts =
      __sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree) != 0;
  if (counts) return;
  std::fprintf(stderr, "no room for another hook of malloc\n");
  std::abort();
}
#else
void CountBytes() {}
#endif

// A constant, and a factor per byte of input.
struct Bound {
  int64_t constant;
  int64_t factor;
};

constexpr Bound kBounds[3] = {
    {SLUICE_FUZZ_EDGES_CONSTANT, SLUICE_FUZZ_EDGES},
    {SLUICE_FUZZ_BYTES_CONSTANT, 16 * SLUICE_FUZZ_BYTES},
    {SLUICE_FUZZ_BYTES_CONSTANT, SLUICE_FUZZ_BYTES}};

void Check(const char* what, int64_t value, const Bound& bound, size_t size) {
  const auto passes =
      static_cast<int64_t>(std::max<size_t>(sluice::fuzz::g_passes, 1));
  const int64_t limit =
      bound.constant + bound.factor * passes * static_cast<int64_t>(size);
  if (value <= limit) return;
  std::fprintf(stderr,
               "an input of %zu bytes costs %lld %s, limit %lld: a constant "
               "and %lld per byte\n",
               size, static_cast<long long>(value), what,
               static_cast<long long>(limit),
               static_cast<long long>(bound.factor));
  std::abort();
}

}  // namespace

extern "C" {

// The compiler's call at every edge; --wrap puts it in the place of
// libFuzzer's, which does nothing.
SLUICE_UNCOUNTED void __wrap___sanitizer_cov_trace_pc() { ++t_cost.edges; }

int __real_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int __wrap_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The first inputs also pay for what is made once.
  constexpr int kWarmUp = 16;
  static int count = 0;
  static const bool tells = std::getenv("SLUICE_FUZZ_TELL") != nullptr;
  CountBytes();
  g_start = g_live;
  sluice::fuzz::g_passes = 1;
  t_cost = Cost();
  const int result = __real_LLVMFuzzerTestOneInput(data, size);
  const Cost cost = t_cost;
  if (++count <= kWarmUp) return result;
  if (tells) {
    static double most[3] = {0, 0, 0};
    const double values[3] = {static_cast<double>(cost.edges),
                              static_cast<double>(cost.asked),
                              static_cast<double>(cost.held)};
    const char* const names[3] = {"edges", "bytes asked for", "bytes held"};
    for (int i = 0; i < 3; ++i) {
      const double factor =
          std::max(0.0, values[i] - static_cast<double>(kBounds[i].constant)) /
          static_cast<double>((size + 1) * sluice::fuzz::g_passes);
      if (values[i] <= most[i]) continue;
      most[i] = values[i];
      std::fprintf(stderr, "%zu bytes: %.0f %s, %.0f per byte\n", size,
                   values[i], names[i], factor);
    }
  }
  Check("edges", cost.edges, kBounds[0], size);
  Check("bytes asked for", cost.asked, kBounds[1], size);
  Check("bytes held", cost.held, kBounds[2], size);
  return result;
}

}  // extern "C"
