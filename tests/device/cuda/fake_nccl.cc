// A library with the calls of NCCL that NcclLibrary names. Its ranks are
// threads over emulated devices: see fake_nccl.h.
#include "tests/device/cuda/fake_nccl.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::testing {
namespace {

constexpr int kInvalidArgument = 4;
constexpr int kFloat32 = 7;
constexpr int kFaultyGather = 3;

FakeNccl* plan = nullptr;

void Pass(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// The ranks of one ncclCommInitAll.
class Group {
 public:
  explicit Group(int ranks) : sends_(static_cast<size_t>(ranks)) {}

  // Returns when all ranks have brought as many bytes and taken all. What a
  // graph has of ranks' call n of NCCL meets call n alone: all ranks capture
  // and replay alike, as NCCL asks.
  void Gather(int rank, int call, const void* send, void* receive,
              size_t bytes) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (rank == plan->late_rank) {
      met_.wait(lock, [this] { return aborted_; });
      return;
    }
    sends_[static_cast<size_t>(rank)] = {call, send, bytes};
    if (!Meet(lock)) return;
    auto* to = static_cast<std::byte*>(receive);
    for (const Send& from : sends_) {
      if (from.bytes != bytes) std::fprintf(stderr, "ranks differ in bytes\n");
      if (from.call != call) {
        std::fprintf(stderr, "call %d meets call %d of NCCL\n", call,
                     from.call);
        std::abort();
      }
      if (bytes > 0) std::memcpy(to, from.data, bytes);
      to += bytes;
    }
    Meet(lock);
    lock.unlock();
    Pass(plan->link_ms);
  }
  void Abort() {
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    met_.notify_all();
  }

 private:
  struct Send {
    int call = 0;
    const void* data = nullptr;
    size_t bytes = 0;
  };
  // False: aborted.
  bool Meet(std::unique_lock<std::mutex>& lock) {
    const int turn = turn_;
    if (++arrived_ == sends_.size()) {
      arrived_ = 0;
      ++turn_;
      met_.notify_all();
    }
    ++plan->waiting;
    met_.wait(lock, [&] { return turn_ != turn || aborted_; });
    --plan->waiting;
    return !aborted_;
  }

  std::mutex mutex_;
  std::condition_variable met_;
  std::vector<Send> sends_;
  size_t arrived_ = 0;
  int turn_ = 0;
  bool aborted_ = false;
};

struct Comm {
  std::shared_ptr<Group> group;
  int rank = 0;
  int calls = 0;  // of ncclAllGather
  // Shared with the gathers that streams and graphs have of it.
  std::shared_ptr<int> uses = std::make_shared<int>(0);
};

bool IsFaulty() { return plan->gathers >= kFaultyGather; }

}  // namespace
}  // namespace sluice::testing

using sluice::testing::Comm;
using sluice::testing::plan;

extern "C" {

void SluiceFakeNccl(sluice::testing::FakeNccl* told) { plan = told; }

int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}

int ncclCommInitAll(void** comms, int count, const int* devices) {
  while (plan->init_hangs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (plan->init_result != 0) return plan->init_result;
  const auto group = std::make_shared<sluice::testing::Group>(count);
  for (int r = 0; r < count; ++r) {
    for (int other = 0; other < r; ++other) {
      if (devices[other] == devices[r]) {
        return sluice::testing::kInvalidArgument;
      }
    }
    comms[r] = new Comm{.group = group, .rank = r};
    ++plan->alive;
  }
  return 0;
}

int ncclAllGather(const void* send, void* receive, size_t count, int type,
                  void* comm, void* stream) {
  ++plan->gathers;
  if (type != sluice::testing::kFloat32) {
    return sluice::testing::kInvalidArgument;
  }
  if (plan->gather_result != 0 && sluice::testing::IsFaulty()) {
    return plan->gather_result;
  }
  const Comm own = *static_cast<Comm*>(comm);
  ++static_cast<Comm*>(comm)->calls;
  plan->enqueue(stream, [own, send, receive, count] {
    own.group->Gather(own.rank, own.calls, send, receive,
                      count * sizeof(float));
  });
  return 0;
}

int ncclCommGetAsyncError(void*, int* result) {
  *result = sluice::testing::IsFaulty() ? plan->async_error : 0;
  return 0;
}

int ncclCommAbort(void* comm) {
  const Comm& own = *static_cast<Comm*>(comm);
  std::fprintf(stderr, "rank %d is aborted\n", own.rank);
  own.group->Abort();
  return 0;
}

int ncclCommDestroy(void* comm) {
  const auto* own = static_cast<const Comm*>(comm);
  if (own->uses.use_count() > 1) ++plan->held;
  delete own;
  --plan->alive;
  return 0;
}

const char* ncclGetErrorString(int result) {
  if (result == 1) return "unhandled cuda error";
  if (result == 2) return "unhandled system error";
  if (result == 6) return "remote process exited or there was a network error";
  return "invalid argument";
}

const char* ncclGetLastError(void*) { return ""; }

}  // extern "C"
