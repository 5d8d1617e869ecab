#include "common/device/cuda/nccl_exchange.h"

#include <cstdlib>
#include <utility>

#include "common/base/cat.h"
#include "common/base/clock.h"
#include "common/base/end_process.h"
#include "common/concurrency/named_thread.h"

namespace sluice {
namespace {

// Ends the process if it is not destroyed in time: NCCL connects devices
// without a deadline of its own.
class InitWatch {
 public:
  InitWatch(size_t devices, Duration deadline)
      : thread_("nccl-init", [=, this] { Watch(devices, deadline); }) {}
  ~InitWatch() {
    {
      MutexLock lock(mutex_);
      done_ = true;
    }
    wake_.NotifyAll();
    thread_.Join();
  }
  InitWatch(const InitWatch&) = delete;
  InitWatch& operator=(const InitWatch&) = delete;

 private:
  void Watch(size_t devices, Duration deadline) {
    const TimePoint last = Clock::now() + deadline;
    {
      MutexLock lock(mutex_);
      while (!done_ && wake_.WaitUntil(mutex_, last)) {
      }
      if (done_) return;
    }
    EndToBeReplaced(Cat("NCCL has not connected ", devices, " GPUs in ",
                        Seconds(deadline), " s"));
  }

  Mutex mutex_;
  CondVar wake_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  NamedThread thread_;
};

}  // namespace

StatusOr<std::unique_ptr<NcclExchange>> NcclExchange::Make(
    NcclLibrary nccl, std::vector<int> devices, Duration deadline,
    bool in_graphs) {
  std::unique_ptr<NcclExchange> exchange(
      new NcclExchange(std::move(nccl), in_graphs));
  // NCCL would register a captured gather's memory, which moves when it grows.
  if (in_graphs) setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
  std::vector<NcclLibrary::Comm> comms(devices.size());
  int result = NcclLibrary::kSuccess;
  {
    const InitWatch watch(devices.size(), deadline);
    result = exchange->nccl_.comm_init_all(
        comms.data(), static_cast<int>(devices.size()), devices.data());
  }
  if (result != NcclLibrary::kSuccess) {
    return Unavailable("NCCL ", exchange->nccl_.version, " cannot connect ",
                       devices.size(),
                       " GPUs: ", exchange->nccl_.ErrorText(result));
  }
  exchange->comms_ = std::move(comms);
  return exchange;
}

NcclExchange::~NcclExchange() {
  for (NcclLibrary::Comm comm : comms_) nccl_.comm_destroy(comm);
}

void NcclExchange::AllGather(int rank, kernels::cuda::Runtime& runtime,
                             const float* send, float* recv, int64_t count) {
  const Gather gather = {this, static_cast<size_t>(rank), send, recv,
                         static_cast<size_t>(count)};
  if (in_graphs_) return runtime.Enqueue(&NcclExchange::HandOn, gather);
  runtime.Submit();
  HandOn(runtime.stream(), &gather);
}

void NcclExchange::HandOn(void* stream, const void* args) {
  const Gather& gather = *static_cast<const Gather*>(args);
  NcclExchange& own = *gather.exchange;
  const int result = own.nccl_.all_gather(gather.send, gather.recv,
                                          gather.count, NcclLibrary::kFloat32,
                                          own.comms_[gather.rank], stream);
  if (result == NcclLibrary::kSuccess || result == NcclLibrary::kInProgress) {
    return;
  }
  EndToBeReplaced(
      Cat("rank ", gather.rank, ": NCCL: ", own.nccl_.ErrorText(result)),
      [&own] { own.Abort(); });
}

std::string NcclExchange::Fault() {
  MutexLock lock(mutex_);
  if (aborted_) return {};  // who aborts ends the process
  for (size_t r = 0; r < comms_.size(); ++r) {
    int error = NcclLibrary::kSuccess;
    const int asked = nccl_.comm_get_async_error(comms_[r], &error);
    if (asked != NcclLibrary::kSuccess) error = asked;
    if (error != NcclLibrary::kSuccess && error != NcclLibrary::kInProgress) {
      return Cat("rank ", r, " of ", comms_.size(),
                 ": NCCL: ", nccl_.ErrorText(error));
    }
  }
  return {};
}

void NcclExchange::Abort() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(aborted_, true)) return;
  }
  std::vector<NamedThread> threads;
  for (NcclLibrary::Comm comm : comms_) {
    threads.emplace_back("nccl-abort",
                         [this, comm] { nccl_.comm_abort(comm); });
  }
}

}  // namespace sluice
