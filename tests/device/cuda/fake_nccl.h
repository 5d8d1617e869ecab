#ifndef SLUICE_TESTS_DEVICE_CUDA_FAKE_NCCL_H_
#define SLUICE_TESTS_DEVICE_CUDA_FAKE_NCCL_H_

#include <atomic>
#include <functional>

namespace sluice::testing {

// What a test tells fake_nccl.cc, a library with NCCL's calls over threads:
// ranks meet when their streams come to a gather, and copy. It is told by its
// function SluiceFakeNccl, once it is loaded and before communicators are made;
// each process of ranks by itself. A process that ends leaves the others' ranks
// in their gathers until they are aborted. As NCCL's own, a process's last
// ncclCommDestroy of a group waits until the other processes have destroyed
// theirs, or have gone.
struct FakeNccl {
  // Hands work to a stream of NCCL's caller.
  std::function<void(void* stream, std::function<void()> work)> enqueue;
  // Returns the device that the calling thread uses.
  std::function<int()> device;
  // Never comes to a gather.
  std::atomic<int> late_rank{-1};
  // What a gather takes where it runs, on every rank: a stream that it is
  // handed to has no such time.
  std::atomic<int> link_ms{0};
  bool init_hangs = false;  // for ever
  int init_result = 0;      // of ncclCommInitAll and ncclGroupEnd
  int id_result = 0;        // of ncclGetUniqueId
  int gather_result = 0;    // of ncclAllGather, from `faulty_gather` on
  int async_error = 0;      // of every communicator, from that gather on
  int faulty_gather = 3;
  // What NCCL_RUNTIME_CONNECT was when a rank last came by an id; -1: not set.
  std::atomic<int> runtime_connect{-1};
  // Calls of ncclAllGather: a graph's replays are none.
  std::atomic<int> gathers{0};
  std::atomic<int> waiting{0};  // ranks, in a gather for others
  std::atomic<int> alive{0};    // communicators: not destroyed, nor aborted
  // Communicators that went while a graph had gathers of theirs: NCCL waits.
  std::atomic<int> held{0};
};

using TellFakeNccl = void(FakeNccl* plan);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_DEVICE_CUDA_FAKE_NCCL_H_
