#ifndef SLUICE_KERNELS_CUDA_RUNTIME_LAUNCH_LIST_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_LAUNCH_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/runtime/unconfirmed.h"

namespace sluice::kernels::cuda {

// Shared memory that a block has without asking for more.
inline constexpr size_t kPlainSharedBytes = 48 * 1024;

// What launches are chosen by. Bits depend on group_products alone, until a GPU
// has compared them: with those numerics have an id of their own.
struct DeviceLimits {
  size_t shared_bytes = kPlainSharedBytes;  // of a block, at most
  int multiprocessors = 1;
  bool group_products = false;  // GroupProducts of cuda_device/groups.h
  UnconfirmedSet asked;         // the environment's on a GPU
};

// Hands a stream work that is no kernel of ours: another library's. `args` are
// the bytes that were added with it.
using WorkOfOthers = void(void* stream, const void* args);

// Launches in order, as bytes that can be compared: two lists that are equal do
// the same with the same memory. Bytes between the members of arguments are
// compared too: AddOf has zeros there. Work of others stands among them. A
// value.
class LaunchList {
 public:
  struct One {
    const void* kernel = nullptr;  // or a WorkOfOthers
    int64_t blocks = 0;
    int threads = 0;  // 0: work of others
    size_t shared_bytes = 0;
    size_t args_begin = 0;  // in the list's bytes
    size_t args_bytes = 0;
    bool operator==(const One&) const = default;
    // Null for a kernel.
    WorkOfOthers* work() const {
      return threads > 0 ? nullptr
                         : reinterpret_cast<WorkOfOthers*>(
                               reinterpret_cast<uintptr_t>(kernel));
    }
  };

  // Adds a launch but for its place in the bytes, and copies its arguments.
  void Add(One one, const void* args, size_t bytes);
  // The same of a struct, whose bytes between members become zero.
  template <typename Args>
  void AddOf(One one, Args args) {
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&args);
#endif
    Add(one, &args, sizeof(args));
  }
  void Clear();

  const std::vector<One>& launches() const { return launches_; }
  bool has_work_of_others() const { return has_work_of_others_; }
  // 16-byte aligned.
  const std::byte* ArgsOf(const One& one) const {
    return args_.data() + one.args_begin;
  }
  uint64_t Hash() const;
  bool operator==(const LaunchList& other) const;

 private:
  std::vector<One> launches_;
  std::vector<std::byte> args_;
  bool has_work_of_others_ = false;
};

// Says of a list's launches, in their order, which may begin before those ahead
// of them have ended. The first one is behind copies, and places what a step's
// kernels read before they wait, all but token ids, which the second one may
// change: the second one begins when the first has ended. So does a launch
// behind work of others, which does not say when the next one may begin.
class EarlyBegins {
 public:
  // The answer for the list's next launch or work of others, which is false.
  bool Next(const LaunchList::One& one) {
    const bool is_work = one.work() != nullptr;
    const bool early = !is_work && alone_ == 0;
    alone_ = std::max(alone_ - 1, is_work ? 1 : 0);
    return early;
  }

 private:
  int alone_ = 2;  // launches
};

// Whether a kernel calls WaitForInputs itself, once it needs them.
template <typename K>
constexpr bool WaitsItself() {
  if constexpr (requires { K::kWaitsItself; }) {
    return K::kWaitsItself;
  } else {
    return false;
  }
}

// Where launches of this thread go in the place of their stream; null: to that.
struct LaunchSink {
  const void* stream = nullptr;
  LaunchList list;
};
inline thread_local LaunchSink* launch_sink = nullptr;

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_LAUNCH_LIST_H_
