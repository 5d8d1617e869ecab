#ifndef SLUICE_COMMON_DEVICE_CUDA_NCCL_EXCHANGE_H_
#define SLUICE_COMMON_DEVICE_CUDA_NCCL_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/device/cuda/device_exchange.h"
#include "common/device/cuda/nccl_library.h"
#include "common/device/cuda/own_ranks.h"

namespace sluice {

// All-gathers of NCCL: a communicator for each of this process's ranks, which
// has a device, used by the rank's thread. With `in_graphs` a gather is part of
// a gathered list of launches, and of its graph: runtimes drop their graphs
// before the exchange is destroyed, since NCCL waits for them then, and all
// ranks capture and replay a gather alike, as NCCL asks. Otherwise a gather
// ends the list. What NCCL refuses ends the process: other ranks wait.
//
// Devices of several processes are connected when Join returns
// (NCCL_RUNTIME_CONNECT is 0 unless it is set), and have gathered once. Those
// of one process NCCL connects as its setting says: from 2.22 on at the first
// gather, which then allocates memory of the devices.
class NcclExchange final : public DeviceExchange {
 public:
  // `devices`: each rank's, none twice. UNAVAILABLE, with NCCL's words, if they
  // cannot be connected; ends the process if NCCL takes beyond the deadline.
  static StatusOr<std::unique_ptr<NcclExchange>> Make(NcclLibrary nccl,
                                                      std::vector<int> devices,
                                                      Duration deadline,
                                                      bool in_graphs);
  // Returns an id for the ranks of several processes, by the process of rank 0:
  // NCCL's, and whether all of them have their gathers in graphs. UNAVAILABLE
  // with NCCL's words.
  static StatusOr<std::string> MakeId(const NcclLibrary& nccl, bool in_graphs);
  // Before any process makes or awaits the id: sets what NCCL reads of the
  // environment. FAILED_PRECONDITION for a NCCL_COMM_BLOCKING by which NCCL
  // would return before it has connected.
  static Status PrepareToJoin();
  // Of ranks of several processes: this one has `ranks`, on a runtime each.
  // `id`: of MakeId. Returns when all of them have come and gathered once;
  // errors as Make's, and INVALID_ARGUMENT for another id. The process ends,
  // too, for a fault that NCCL finds meanwhile.
  static StatusOr<std::unique_ptr<NcclExchange>> Join(
      NcclLibrary nccl, std::span<kernels::cuda::Runtime* const> runtimes,
      const OwnRanks& ranks, const std::string& id, Duration deadline);
  // NCCL may wait for other processes to let their ranks go, too: the process
  // ends if that takes beyond the deadline.
  ~NcclExchange() override;
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;

  void AllGather(int index, kernels::cuda::Runtime& runtime, const float* send,
                 float* recv, int64_t count) override;
  void AllGatherAtOnce(int index, kernels::cuda::Runtime& runtime,
                       const float* send, float* recv, int64_t count) override;
  bool waits() const override { return false; }
  bool joins_lists() const override { return in_graphs_; }
  std::string Fault() override ABSL_LOCKS_EXCLUDED(mutex_);
  // From a thread for each communicator: it may wait for its device.
  void Abort() override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A rank's all-gather.
  struct Gather {
    NcclExchange* exchange;
    size_t index;  // the rank's
    const float* send;
    float* recv;
    size_t count;
  };

  NcclExchange(NcclLibrary nccl, const OwnRanks& ranks, Duration deadline,
               bool in_graphs);
  // What is connected.
  std::string Text() const;
  // Connects by `connect(comms)`, which returns NCCL's result. Aborts what was
  // made if it fails.
  template <typename Function>
  Status Connect(const Function& connect);
  int JoinOthers(std::span<kernels::cuda::Runtime* const> runtimes,
                 const NcclLibrary::UniqueId& id, NcclLibrary::Comm* comms);
  // Every rank gathers, of this process and of the others.
  Status GatherOnce(std::span<kernels::cuda::Runtime* const> runtimes);
  // Hands `stream` the Gather `args`: a kernels::cuda::WorkOfOthers.
  static void HandOn(void* stream, const void* args);

  const NcclLibrary nccl_;
  const OwnRanks ranks_;
  const Duration deadline_;
  const bool in_graphs_;
  std::vector<NcclLibrary::Comm> comms_;  // by own rank
  // Held while communicators are asked: an abort frees them.
  Mutex mutex_;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_NCCL_EXCHANGE_H_
