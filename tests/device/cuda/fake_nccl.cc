// A library with the calls of NCCL that NcclLibrary names. Its ranks are
// threads over emulated devices, of one process or of several: see fake_nccl.h.
#include "tests/device/cuda/fake_nccl.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::testing {
namespace {

constexpr int kInvalidArgument = 4;
constexpr int kInvalidUsage = 5;
constexpr int kFloat32 = 7;

FakeNccl* plan = nullptr;

void Pass(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Memory that ranks of several processes share, as it is made: full of zeros.
struct Shared {
  static constexpr int kMostRanks = 16;
  static constexpr size_t kMostBytes = size_t{64} << 20;  // that a rank sends
  struct Send {
    int call;
    size_t bytes;
  };
  std::atomic<int> ranks;   // of the group; 0: none has come
  std::atomic<int> joined;  // of those
  std::atomic<bool> here[kMostRanks];
  std::atomic<pid_t> processes[kMostRanks];
  std::atomic<bool> left[kMostRanks];  // destroyed or aborted
  std::atomic<int> num_left;
  std::atomic<int> arrived;  // at the present meeting
  std::atomic<int> turn;     // of meetings
  Send sends[kMostRanks];

  std::byte* DataOf(int rank) {
    return reinterpret_cast<std::byte*>(this) + kHeaderBytes +
           static_cast<size_t>(rank) * kMostBytes;
  }
  static constexpr size_t kHeaderBytes = 4096;
  static constexpr size_t kBytes = kHeaderBytes + kMostRanks * kMostBytes;
};
static_assert(sizeof(Shared) <= Shared::kHeaderBytes);
static_assert(std::atomic<int>::is_always_lock_free);

// An id: a file without a name, which lasts while a process has it.
struct Id {
  pid_t process;
  int file;
};

// Whether the process has not ended: a zombie has.
bool Runs(pid_t process) {
  const int file = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (file < 0) return false;
  pollfd ended = {.fd = file, .events = POLLIN, .revents = 0};
  const bool runs = ::poll(&ended, 1, 0) == 0;
  ::close(file);
  return runs;
}

Id MakeId() {
  const int file = ::memfd_create("fake-nccl", 0);
  if (file < 0 || ::ftruncate(file, Shared::kBytes) != 0) {
    std::perror("fake-nccl");
    std::abort();
  }
  return {::getpid(), file};
}

// One rank's end of the ranks of an id, threads of this process or of others.
class Group {
 public:
  explicit Group(const Id& id) {
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/%d/fd/%d",
                  static_cast<int>(id.process), id.file);
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void* const data = ::mmap(nullptr, Shared::kBytes, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_NORESERVE, file, 0);
    ::close(file);
    if (data != MAP_FAILED) shared_ = static_cast<Shared*>(data);
  }
  ~Group() {
    if (shared_ != nullptr) ::munmap(shared_, Shared::kBytes);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Takes a place among `ranks`. False if there is no such place, or no id.
  bool Join(int ranks, int rank) {
    if (shared_ == nullptr || ranks > Shared::kMostRanks) return false;
    int told = 0;
    shared_->ranks.compare_exchange_strong(told, ranks);
    if (shared_->ranks != ranks || rank < 0 || rank >= ranks) return false;
    if (shared_->here[rank].exchange(true)) return false;
    rank_ = rank;
    shared_->processes[rank] = ::getpid();
    ++shared_->joined;
    Wake(shared_->joined);
    return true;
  }
  void WaitForAll() {
    for (int joined = 0; (joined = shared_->joined) != shared_->ranks;) {
      SleepWhile(shared_->joined, joined);
    }
  }

  // Returns when all ranks have brought as many bytes and taken all. What a
  // graph has of ranks' call n of NCCL meets call n alone: all ranks capture
  // and replay alike, as NCCL asks. Ranks that bring other numbers of bytes
  // wait for ever, which NCCL leaves undefined.
  void Gather(int call, const void* send, void* receive, size_t bytes) {
    if (rank_ == plan->late_rank) return WaitForAbort();
    if (bytes > Shared::kMostBytes) std::abort();
    shared_->sends[rank_] = {call, bytes};
    if (bytes > 0) std::memcpy(shared_->DataOf(rank_), send, bytes);
    if (!Meet()) return;
    auto* to = static_cast<std::byte*>(receive);
    for (int r = 0; r < shared_->ranks; ++r) {
      const Shared::Send& from = shared_->sends[r];
      if (from.bytes != bytes) {
        std::fprintf(stderr, "ranks differ in bytes\n");
        return WaitForAbort();
      }
      if (from.call != call) {
        std::fprintf(stderr, "call %d meets call %d of NCCL\n", call,
                     from.call);
        std::abort();
      }
      if (bytes > 0) std::memcpy(to, shared_->DataOf(r), bytes);
      to += bytes;
    }
    Meet();
    Pass(plan->link_ms);
  }
  void Abort() {
    aborted_ = true;
    Wake(shared_->turn);
    Leave();
  }
  void Leave() {
    shared_->left[rank_] = true;
    ++shared_->num_left;
    Wake(shared_->num_left);
  }
  // Leave, and waits for the other processes' ranks behind the last own one.
  void LeaveWithOthers() {
    Leave();
    const pid_t own = ::getpid();
    for (int r = 0; r < shared_->ranks; ++r) {
      if (shared_->processes[r] == own && !shared_->left[r]) return;
    }
    for (int r = 0; r < shared_->ranks; ++r) {
      for (int left = 0; left = shared_->num_left, !shared_->left[r];) {
        const pid_t process = shared_->processes[r];
        if (process == 0 || !Runs(process)) break;
        SleepWhile(shared_->num_left, left);
      }
    }
  }
  int rank() const { return rank_; }

 private:
  // Of several processes: no private futex.
  static void Wake(std::atomic<int>& word) {
    ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  static void SleepWhile(std::atomic<int>& word, int value) {
    constexpr timespec kLook = {0, 10'000'000};
    ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &kLook, nullptr, 0);
  }
  void WaitForAbort() {
    while (!aborted_) Pass(5);
  }
  // False: aborted.
  bool Meet() {
    const int turn = shared_->turn;
    if (++shared_->arrived == shared_->ranks) {
      shared_->arrived = 0;
      ++shared_->turn;
      Wake(shared_->turn);
    }
    ++plan->waiting;
    while (shared_->turn == turn && !aborted_) SleepWhile(shared_->turn, turn);
    --plan->waiting;
    return !aborted_;
  }

  Shared* shared_ = nullptr;
  int rank_ = 0;
  std::atomic<bool> aborted_{false};
};

struct Comm {
  std::shared_ptr<Group> group;
  int calls = 0;  // of ncclAllGather
  std::atomic<bool> aborted{false};
  // Shared with the gathers that streams and graphs have of it.
  std::shared_ptr<int> uses = std::make_shared<int>(0);
};

// Null: an argument is wrong.
Comm* NewComm(const Id& id, int ranks, int rank) {
  auto group = std::make_shared<Group>(id);
  if (!group->Join(ranks, rank)) return nullptr;
  ++plan->alive;
  auto* const made = new Comm;
  made->group = std::move(group);
  return made;
}

void HangIfTold() {
  while (plan->init_hangs) Pass(5);
}

// What the thread has begun between ncclGroupStart and ncclGroupEnd.
struct Begun {
  int depth = 0;
  int result = 0;  // of the first that failed
  std::vector<std::shared_ptr<Group>> groups;
  std::vector<int> devices;  // of those
};
thread_local Begun begun;

int WaitForBegun() {
  HangIfTold();
  if (plan->init_result != 0) begun.result = plan->init_result;
  const auto groups = std::exchange(begun.groups, {});
  begun.devices.clear();
  const int result = std::exchange(begun.result, 0);
  for (const auto& group : groups) {
    if (result == 0) group->WaitForAll();
  }
  return result;
}

bool IsFaulty() { return plan->gathers >= plan->faulty_gather; }

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
  sluice::testing::HangIfTold();
  if (plan->init_result != 0) return plan->init_result;
  const sluice::testing::Id id = sluice::testing::MakeId();
  for (int r = 0; r < count; ++r) {
    for (int other = 0; other < r; ++other) {
      if (devices[other] == devices[r]) {
        return sluice::testing::kInvalidArgument;
      }
    }
    comms[r] = sluice::testing::NewComm(id, count, r);
  }
  ::close(id.file);
  return 0;
}

struct ncclUniqueId {
  char bytes[128];
};

int ncclGetUniqueId(ncclUniqueId* made) {
  if (plan->id_result != 0) return plan->id_result;
  const sluice::testing::Id id = sluice::testing::MakeId();
  *made = {};
  std::memcpy(made->bytes, &id, sizeof(id));
  return 0;
}

int ncclGroupStart() {
  ++sluice::testing::begun.depth;
  return 0;
}

int ncclGroupEnd() {
  if (--sluice::testing::begun.depth > 0) return 0;
  return sluice::testing::WaitForBegun();
}

int ncclCommInitRank(void** comm, int ranks, ncclUniqueId made, int rank) {
  sluice::testing::Id id = {};
  std::memcpy(&id, made.bytes, sizeof(id));
  sluice::testing::Begun& begun = sluice::testing::begun;
  const char* const connect = std::getenv("NCCL_RUNTIME_CONNECT");
  plan->runtime_connect = connect == nullptr ? -1 : std::atoi(connect);
  const int device = plan->device();
  if (std::ranges::find(begun.devices, device) != begun.devices.end()) {
    std::fprintf(stderr, "device %d has two ranks\n", device);
    begun.result = sluice::testing::kInvalidUsage;
    return begun.result;
  }
  begun.devices.push_back(device);
  if (Comm* const own = sluice::testing::NewComm(id, ranks, rank);
      own != nullptr) {
    *comm = own;
    begun.groups.push_back(own->group);
  } else {
    begun.result = sluice::testing::kInvalidArgument;
  }
  return begun.depth > 0 ? 0 : sluice::testing::WaitForBegun();
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
  Comm* const own = static_cast<Comm*>(comm);
  plan->enqueue(stream, [group = own->group, uses = own->uses,
                         call = own->calls++, send, receive, count] {
    group->Gather(call, send, receive, count * sizeof(float));
  });
  return 0;
}

int ncclCommGetAsyncError(void*, int* result) {
  *result = sluice::testing::IsFaulty() ? plan->async_error : 0;
  return 0;
}

int ncclCommAbort(void* comm) {
  // Its memory stays: other threads may be in calls of it.
  Comm& own = *static_cast<Comm*>(comm);
  std::fprintf(stderr, "rank %d is aborted\n", own.group->rank());
  own.group->Abort();
  if (!own.aborted.exchange(true)) --plan->alive;
  return 0;
}

int ncclCommDestroy(void* comm) {
  const auto* own = static_cast<const Comm*>(comm);
  if (own->uses.use_count() > 1) ++plan->held;
  own->group->LeaveWithOthers();
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
