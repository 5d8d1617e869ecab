#include "common/device/cuda/nccl_exchange.h"

#include <cstdlib>
#include <cstring>
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
  // `what`: is to be connected.
  InitWatch(const std::string& what, Duration deadline)
      : thread_("nccl-init", [=, this] { Watch(what, deadline); }) {}
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
  void Watch(const std::string& what, Duration deadline) {
    const TimePoint last = Clock::now() + deadline;
    {
      MutexLock lock(mutex_);
      while (!done_ && wake_.WaitUntil(mutex_, last)) {
      }
      if (done_) return;
    }
    EndToBeReplaced(
        Cat("NCCL has not connected ", what, " in ", Seconds(deadline), " s"));
  }

  Mutex mutex_;
  CondVar wake_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  NamedThread thread_;
};

}  // namespace

NcclExchange::NcclExchange(NcclLibrary nccl, const OwnRanks& ranks,
                           bool in_graphs)
    : nccl_(std::move(nccl)), ranks_(ranks), in_graphs_(in_graphs) {
  // NCCL would register a captured gather's memory, which moves when it grows.
  if (in_graphs) setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
}

template <typename Function>
Status NcclExchange::Connect(Duration deadline, const Function& connect) {
  const std::string what =
      ranks_.has_others() ? Cat(ranks_.Text(), " with those of other processes")
                          : Cat(ranks_.count, " GPUs");
  std::vector<NcclLibrary::Comm> comms(static_cast<size_t>(ranks_.count));
  int result = NcclLibrary::kSuccess;
  {
    const InitWatch watch(what, deadline);
    result = connect(comms.data());
  }
  if (result != NcclLibrary::kSuccess) {
    return Unavailable("NCCL ", nccl_.version, " cannot connect ", what, ": ",
                       nccl_.ErrorText(result));
  }
  comms_ = std::move(comms);
  return OkStatus();
}

StatusOr<std::unique_ptr<NcclExchange>> NcclExchange::Make(
    NcclLibrary nccl, std::vector<int> devices, Duration deadline,
    bool in_graphs) {
  const int count = static_cast<int>(devices.size());
  std::unique_ptr<NcclExchange> made(
      new NcclExchange(std::move(nccl), OwnRanks::All(count), in_graphs));
  SLUICE_RETURN_IF_ERROR(made->Connect(deadline, [&](NcclLibrary::Comm* comms) {
    return made->nccl_.comm_init_all(comms, count, devices.data());
  }));
  return made;
}

StatusOr<std::unique_ptr<NcclExchange>> NcclExchange::Join(
    NcclLibrary nccl, std::span<kernels::cuda::Runtime* const> runtimes,
    const OwnRanks& ranks, const std::string& id, Duration deadline,
    bool in_graphs) {
  NcclLibrary::UniqueId bytes = {};
  if (id.size() != sizeof(bytes.bytes)) {
    return InvalidArgument("NCCL's id of ranks of several processes has ",
                           sizeof(bytes.bytes), " bytes, ", ranks.Text(),
                           " got one of ", id.size());
  }
  std::memcpy(bytes.bytes, id.data(), id.size());
  std::unique_ptr<NcclExchange> made(
      new NcclExchange(std::move(nccl), ranks, in_graphs));
  SLUICE_RETURN_IF_ERROR(made->Connect(deadline, [&](NcclLibrary::Comm* comms) {
    return made->JoinOthers(runtimes, bytes, comms);
  }));
  return made;
}

// A group, since each rank alone would wait for the others.
int NcclExchange::JoinOthers(std::span<kernels::cuda::Runtime* const> runtimes,
                             const NcclLibrary::UniqueId& id,
                             NcclLibrary::Comm* comms) {
  int result = nccl_.group_start();
  if (result != NcclLibrary::kSuccess) return result;
  for (size_t i = 0; i < runtimes.size(); ++i) {
    runtimes[i]->Adopt();  // a communicator is of the thread's device
    result = nccl_.comm_init_rank(&comms[i], ranks_.all, id,
                                  ranks_.NumberOf(static_cast<int>(i)));
    if (result != NcclLibrary::kSuccess) break;
  }
  const int ended = nccl_.group_end();
  return result == NcclLibrary::kSuccess ? ended : result;
}

NcclExchange::~NcclExchange() {
  for (NcclLibrary::Comm comm : comms_) nccl_.comm_destroy(comm);
}

void NcclExchange::AllGather(int index, kernels::cuda::Runtime& runtime,
                             const float* send, float* recv, int64_t count) {
  if (!in_graphs_) return AllGatherAtOnce(index, runtime, send, recv, count);
  runtime.Enqueue(&NcclExchange::HandOn,
                  Gather{this, static_cast<size_t>(index), send, recv,
                         static_cast<size_t>(count)});
}

void NcclExchange::AllGatherAtOnce(int index, kernels::cuda::Runtime& runtime,
                                   const float* send, float* recv,
                                   int64_t count) {
  const Gather gather = {this, static_cast<size_t>(index), send, recv,
                         static_cast<size_t>(count)};
  runtime.Submit();
  HandOn(runtime.stream(), &gather);
}

void NcclExchange::HandOn(void* stream, const void* args) {
  const Gather& gather = *static_cast<const Gather*>(args);
  NcclExchange& own = *gather.exchange;
  const int result = own.nccl_.all_gather(gather.send, gather.recv,
                                          gather.count, NcclLibrary::kFloat32,
                                          own.comms_[gather.index], stream);
  if (result == NcclLibrary::kSuccess || result == NcclLibrary::kInProgress) {
    return;
  }
  EndToBeReplaced(
      Cat("rank ", own.ranks_.NumberOf(static_cast<int>(gather.index)),
          ": NCCL: ", own.nccl_.ErrorText(result)),
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
      return Cat(ranks_.TextOf(static_cast<int>(r)),
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
