#ifndef SLUICE_TESTS_TESTING_FAILING_CALLS_H_
#define SLUICE_TESTS_TESTING_FAILING_CALLS_H_

#include <atomic>
#include <cstdint>

namespace sluice::testing {

// Makes one call of this process fail: the n-th allocation of some size (of
// malloc and its kin, and of mmap), or the n-th call that writes to a file or
// makes or renames one. A program that links failing_calls.cc has it, and so
// has one that runs with the library in LD_PRELOAD and a file of this layout
// named by SLUICE_FAILING_CALLS, through which another process uses it
// (tests/failures/failing_calls.py).
struct FailingCalls {
  enum Kind : uint64_t { kAllocations = 1, kWrites = 2 };

  std::atomic<uint64_t> armed;      // 0: nothing is counted
  std::atomic<uint64_t> kind;       // what is counted
  std::atomic<uint64_t> fail_at;    // the number that fails, from 1; 0: none
  std::atomic<uint64_t> min_bytes;  // of an allocation that is counted
  std::atomic<uint64_t> max_bytes;
  std::atomic<uint64_t> error;   // of a write that fails: its errno
  std::atomic<uint64_t> count;   // of calls so far
  std::atomic<uint64_t> failed;  // 1: the call was there, and failed
  std::atomic<uint64_t> quiet;   // 1: the failure is not told on stderr
  std::atomic<uint64_t> lasts;   // 1: all calls after it fail as well
};

// This process's. Any thread.
FailingCalls& ThisProcessFailingCalls();

// Lets the n-th allocation of at least `min_bytes` fail while it lives, and if
// it `lasts` all behind it; n 0 counts alone.
class FailingAllocation {
 public:
  FailingAllocation(uint64_t n, uint64_t min_bytes, bool lasts = false) {
    calls_.armed = 0;
    calls_.kind = FailingCalls::kAllocations;
    calls_.fail_at = n;
    calls_.min_bytes = min_bytes;
    calls_.max_bytes = UINT64_MAX;
    calls_.count = 0;
    calls_.failed = 0;
    calls_.quiet = 1;
    calls_.lasts = lasts ? 1 : 0;
    calls_.armed = 1;
  }
  ~FailingAllocation() { calls_.armed = 0; }
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  uint64_t count() const { return calls_.count; }
  bool failed() const { return calls_.failed != 0; }

 private:
  FailingCalls& calls_ = ThisProcessFailingCalls();
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TESTING_FAILING_CALLS_H_
