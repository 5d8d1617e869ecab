#include "common/concurrency/await_change.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice {
namespace {

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

}  // namespace

uint32_t SpinForChange(const std::atomic<uint32_t>& word, uint32_t old,
                       std::chrono::steady_clock::time_point deadline) {
  do {
    for (int i = 0; i < 32; ++i) {
      const uint32_t value = word.load(std::memory_order_acquire);
      if (value != old) return value;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return old;
}

// The other side changes `word`, then reads `sleepers`; this side does the
// reverse. All is sequentially consistent, so one of the two sees the other.
uint32_t AwaitChange(const std::atomic<uint32_t>& word, uint32_t old,
                     std::atomic<uint32_t>& sleepers,
                     std::chrono::microseconds spin) {
  if (spin > std::chrono::microseconds::zero()) {
    const uint32_t value =
        SpinForChange(word, old, std::chrono::steady_clock::now() + spin);
    if (value != old) return value;
  }
  sleepers.fetch_add(1);
  uint32_t value = word.load();
  while (value == old) {
    // Sleeps while `word` is `old`; may return early.
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
    value = word.load();
  }
  sleepers.fetch_sub(1);
  return value;
}

void WakeSleepers(const std::atomic<uint32_t>& word,
                  const std::atomic<uint32_t>& sleepers) {
  if (sleepers.load() == 0) return;
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace sluice
