#include "common/device/cuda/nccl_exchange.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "common/base/cat.h"
#include "common/base/clock.h"
#include "common/base/end_process.h"
#include "common/concurrency/named_thread.h"
#include "common/device/cuda/collective_watch.h"
#include "common/device/cuda/cuda_memory.h"

namespace sluice {
namespace {

// What follows NCCL's bytes of an id of several processes.
constexpr char kNoGraphs = 0;
constexpr char kInGraphs = 1;
constexpr size_t kIdBytes = NcclLibrary::kIdBytes + 1;

// Ends the process if it is not destroyed in time: NCCL connects devices, and
// lets them go, without a deadline of its own.
class NcclWatch {
 public:
  // `late`: what the process ends with, "NCCL has not ...".
  NcclWatch(const std::string& late, Duration deadline)
      : thread_("nccl-watch", [=, this] { Watch(late, deadline); }) {}
  ~NcclWatch() {
    {
      MutexLock lock(mutex_);
      done_ = true;
    }
    wake_.NotifyAll();
    thread_.Join();
  }
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

 private:
  void Watch(const std::string& late, Duration deadline) {
    const TimePoint last = Clock::now() + deadline;
    {
      MutexLock lock(mutex_);
      while (!done_ && wake_.WaitUntil(mutex_, last)) {
      }
      if (done_) return;
    }
    EndToBeReplaced(Cat(late, " in ", Seconds(deadline), " s"));
  }

  Mutex mutex_;
  CondVar wake_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  NamedThread thread_;
};

// Calls call(i) for each of `count` ranks, until one fails, and returns NCCL's
// result of all. In a group, since each rank alone would wait for the others.
template <typename Call>
int InGroup(const NcclLibrary& nccl, size_t count, const Call& call) {
  int result = nccl.group_start();
  if (result != NcclLibrary::kSuccess) return result;
  for (size_t i = 0; i < count && result == NcclLibrary::kSuccess; ++i) {
    result = call(i);
  }
  const int ended = nccl.group_end();
  return result == NcclLibrary::kSuccess ? ended : result;
}

}  // namespace

NcclExchange::NcclExchange(NcclLibrary nccl, const OwnRanks& ranks,
                           Duration deadline, bool in_graphs)
    : nccl_(std::move(nccl)),
      ranks_(ranks),
      deadline_(deadline),
      in_graphs_(in_graphs) {
  // NCCL would register a captured gather's memory, which moves when it grows.
  if (in_graphs) setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
}

std::string NcclExchange::Text() const {
  return ranks_.has_others()
             ? Cat(ranks_.Text(), " with those of other processes")
             : Cat(ranks_.count, " GPUs");
}

template <typename Function>
Status NcclExchange::Connect(const Function& connect) {
  std::vector<NcclLibrary::Comm> comms(static_cast<size_t>(ranks_.count));
  const int result = connect(comms.data());
  if (result == NcclLibrary::kSuccess) {
    comms_ = std::move(comms);
    return OkStatus();
  }
  const Status refused = Unavailable("NCCL ", nccl_.version, " cannot connect ",
                                     Text(), ": ", nccl_.ErrorText(result));
  std::erase(comms, nullptr);  // those that were not made
  comms_ = std::move(comms);
  Abort();
  return refused;
}

StatusOr<std::unique_ptr<NcclExchange>> NcclExchange::Make(
    NcclLibrary nccl, std::vector<int> devices, Duration deadline,
    bool in_graphs) {
  const int count = static_cast<int>(devices.size());
  std::unique_ptr<NcclExchange> made(new NcclExchange(
      std::move(nccl), OwnRanks::All(count), deadline, in_graphs));
  const NcclWatch watch(Cat("NCCL has not connected ", made->Text()), deadline);
  SLUICE_RETURN_IF_ERROR(made->Connect([&](NcclLibrary::Comm* comms) {
    return made->nccl_.comm_init_all(comms, count, devices.data());
  }));
  return made;
}

StatusOr<std::string> NcclExchange::MakeId(const NcclLibrary& nccl,
                                           bool in_graphs) {
  SLUICE_ASSIGN_OR_RETURN(std::string id, nccl.MakeId());
  id.push_back(in_graphs ? kInGraphs : kNoGraphs);
  return id;
}

Status NcclExchange::PrepareToJoin() {
  // As NCCL reads a number.
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  if (blocking != nullptr && *blocking != '\0') {
    errno = 0;
    if (std::strtoll(blocking, nullptr, 0) == 0 && errno == 0) {
      return FailedPrecondition(
          "ranks of several processes need NCCL's calls to wait: the variable ",
          "NCCL_COMM_BLOCKING must be 1 or not set, got '", blocking, "'");
    }
  }
  // NCCL would connect at the first gather, and take memory, behind the load.
  setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
  return OkStatus();
}

StatusOr<std::unique_ptr<NcclExchange>> NcclExchange::Join(
    NcclLibrary nccl, std::span<kernels::cuda::Runtime* const> runtimes,
    const OwnRanks& ranks, const std::string& id, Duration deadline) {
  if (id.size() != kIdBytes) {
    return InvalidArgument("the id of ranks of several processes has ",
                           kIdBytes, " bytes, ", ranks.Text(), " got one of ",
                           id.size());
  }
  const char in_graphs = id.back();
  if (in_graphs != kNoGraphs && in_graphs != kInGraphs) {
    return InvalidArgument("the id of ranks of several processes ends with ",
                           int{kNoGraphs}, " or ", int{kInGraphs}, ", ",
                           ranks.Text(), " got one that ends with ",
                           int{in_graphs});
  }
  NcclLibrary::UniqueId bytes = {};
  std::memcpy(bytes.bytes, id.data(), sizeof(bytes.bytes));
  std::unique_ptr<NcclExchange> made(new NcclExchange(
      std::move(nccl), ranks, deadline, in_graphs == kInGraphs));
  const NcclWatch watch(Cat("NCCL has not connected ", made->Text()), deadline);
  SLUICE_RETURN_IF_ERROR(made->Connect([&](NcclLibrary::Comm* comms) {
    return made->JoinOthers(runtimes, bytes, comms);
  }));
  if (const Status gathered = made->GatherOnce(runtimes); !gathered.ok()) {
    made->Abort();
    return gathered;
  }
  return made;
}

int NcclExchange::JoinOthers(std::span<kernels::cuda::Runtime* const> runtimes,
                             const NcclLibrary::UniqueId& id,
                             NcclLibrary::Comm* comms) {
  return InGroup(nccl_, runtimes.size(), [&](size_t i) {
    runtimes[i]->Adopt();  // a communicator is of the thread's device
    return nccl_.comm_init_rank(&comms[i], ranks_.all, id,
                                ranks_.NumberOf(static_cast<int>(i)));
  });
}

// A transport that does not work is found here, and not by the first step.
Status NcclExchange::GatherOnce(
    std::span<kernels::cuda::Runtime* const> runtimes) {
  constexpr size_t kCount = 4;  // floats of a rank
  std::deque<GrowingMemory> memory;
  // Before a device waits for others.
  for (kernels::cuda::Runtime* runtime : runtimes) {
    GrowingMemory& own = memory.emplace_back(runtime);
    SLUICE_RETURN_IF_ERROR(own.Reserve(sizeof(float) * kCount *
                                       static_cast<size_t>(ranks_.all + 1)));
  }
  const auto gather = [&](size_t i) {
    float* const send = memory[i].AtLeast<float>(0);
    return nccl_.all_gather(send, send + kCount, kCount, NcclLibrary::kFloat32,
                            comms_[i], runtimes[i]->stream());
  };
  const int result = InGroup(nccl_, runtimes.size(), gather);
  if (result != NcclLibrary::kSuccess) {
    const Status refused =
        Unavailable("NCCL ", nccl_.version, " connected ", Text(),
                    ", but does not gather: ", nccl_.ErrorText(result));
    Abort();  // else its memory could not be freed: the stream would wait
    return refused;
  }
  CollectiveWatch watch(ranks_, this, {.deadline = deadline_});
  std::vector<NamedThread> threads;
  for (kernels::cuda::Runtime* runtime : runtimes) {
    threads.emplace_back("nccl-gather", [runtime] {
      runtime->Adopt();
      runtime->Sync();
    });
  }
  for (NamedThread& thread : threads) thread.Join();
  return OkStatus();
}

NcclExchange::~NcclExchange() {
  {
    MutexLock lock(mutex_);
    if (aborted_) return;
  }
  std::optional<NcclWatch> watch;
  if (ranks_.has_others()) {
    watch.emplace(Cat("NCCL has not let go of ", ranks_.Text()), deadline_);
  }
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
