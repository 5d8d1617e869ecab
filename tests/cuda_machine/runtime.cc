#include "kernels/cuda/runtime/runtime.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "tests/cuda_machine/begun_launches.h"
#include "tests/cuda_machine/open_machine.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kPoison = 0xFF;
constexpr size_t kMemoryAlignment = 64;

thread_local int adopted = 0;  // device's index

class MachineRuntime final : public Runtime, LaunchGraphs::Device {
 public:
  explicit MachineRuntime(const MachineOptions& options)
      : reaches_peers_(options.reaches_peers),
        others_(options.others),
        launches_(options.launches),
        machine_(options.schedule),
        graphs_(this) {
    facts_.index = options.index;
    facts_.name = "a block as fibres";
    facts_.id = "GPU-" + std::to_string(options.index);
    facts_.architecture = "emulated";
    facts_.asked = options.asked;
    DeviceLimits limits = machine_.limits();
    limits.asked = options.asked;
    machine_.Limit(limits);
    facts_.total_memory = options.memory;
    facts_.free_memory = FreeMemory();
    sink_.stream = &machine_;
    machine_.RunLater();
    Adopt();
  }
  ~MachineRuntime() override {
    if (launch_sink == &sink_) launch_sink = nullptr;
    machine_.RunEnqueued();
  }

  const DeviceFacts& facts() const override { return facts_; }
  Stream stream() const override { return const_cast<Machine*>(&machine_); }

  uint64_t FreeMemory() override {
    const uint64_t taken = used_ + (others_ == nullptr ? 0 : others_->load());
    return facts_.total_memory - std::min(facts_.total_memory, taken);
  }
  void Adopt() override { adopted = facts_.index; }
  void* Allocate(size_t bytes) override {
    Adopt();
    const size_t whole = (std::max<size_t>(bytes, 1) + kMemoryAlignment - 1) /
                         kMemoryAlignment * kMemoryAlignment;
    if (whole > FreeMemory()) return nullptr;
    void* const data = std::aligned_alloc(kMemoryAlignment, whole);
    if (data == nullptr) return nullptr;
    std::memset(data, kPoison, whole);
    used_ += whole;
    bytes_[data] = whole;
    return data;
  }
  void Free(void* data) override {
    Adopt();
    const auto found = bytes_.find(data);
    used_ -= found->second;
    bytes_.erase(found);
    Submit();
    machine_.Enqueue([data] { std::free(data); });
  }
  std::shared_ptr<void> AllocateHost(size_t bytes) override {
    Adopt();
    return {std::malloc(std::max<size_t>(bytes, 1)), std::free};
  }
  // Its copies are the host's.
  void StageCopies(size_t, int) override {}
  bool ReachPeer(int) override { return reaches_peers_; }
  void CopyIn(const void* from, void* to, const ByteRows& rows) override {
    if (rows.bytes == 0) return;
    Submit();
    machine_.Enqueue([from, to, rows] {
      for (size_t r = 0; r < rows.rows; ++r) {
        std::memcpy(static_cast<std::byte*>(to) + r * rows.stride,
                    static_cast<const std::byte*>(from) + r * rows.bytes,
                    rows.bytes);
      }
    });
  }
  void CopyOut(const void* from, void* to, const ByteRows& rows) override {
    if (rows.bytes == 0) return;
    Submit();
    machine_.Enqueue([from, to, rows] {
      for (size_t r = 0; r < rows.rows; ++r) {
        std::memcpy(static_cast<std::byte*>(to) + r * rows.bytes,
                    static_cast<const std::byte*>(from) + r * rows.stride,
                    rows.bytes);
      }
    });
  }
  void GatherLaunches(bool gather, uint64_t alike) override {
    Submit();
    launch_sink = gather ? &sink_ : nullptr;
    alike_ = alike;
  }
  void Submit() override {
    graphs_.Begin(sink_.list, alike_);
    sink_.list.Clear();
  }
  void StepAside() override { Sync(); }
  void DropGraphs() override { graphs_.Drop(); }
  const GraphCounts& graph_counts() const override { return graphs_.counts(); }
  void Sync() override {
    Submit();
    RunAll(machine_.enqueued());
  }
  uint64_t Mark() override {
    Submit();
    if (marks_ >= kMarks) WaitFor(marks_ - kMarks);
    EndOf(marks_) = done_ + machine_.enqueued();
    return marks_++;
  }
  // Nothing runs by itself: what is asked for often has run.
  bool HasReached(uint64_t mark) override {
    constexpr int kPatience = 100;
    if (++asked_ % kPatience == 0) WaitFor(mark);
    return mark + kMarks < marks_ || EndOf(mark) <= done_;
  }
  void WaitFor(uint64_t mark) override {
    if (mark + kMarks < marks_) return;  // another mark took its place
    if (EndOf(mark) > done_) RunAll(EndOf(mark) - done_);
  }
  void MakeMoments(size_t count) override { moments_.assign(count, kNever); }
  void NoteMoment(size_t number) override {
    Submit();
    moments_[number] = kNever;
    machine_.Enqueue([this, number] { moments_[number] = Now(); });
  }
  // As of CUDA, which refuses an event that the stream has not come to.
  int64_t NanosBetween(size_t from, size_t to) override {
    if (moments_[from] == kNever || moments_[to] == kNever) {
      std::fprintf(stderr, "the stream has not come to moment %zu or %zu\n",
                   from, to);
      std::abort();
    }
    return moments_[to] - moments_[from];
  }

 private:
  void RunAll(size_t count) {
    machine_.RunEnqueued(count);
    done_ += count;
    if (machine_.faults().empty()) return;
    std::fprintf(stderr, "device code: %s\n", machine_.faults()[0].c_str());
    std::abort();
  }

  // The list's launches, with arguments of their own, which are aligned as a
  // type of a kernel's may ask for.
  void Start(const LaunchList& list) override {
    const auto kept = std::make_shared<const LaunchList>(list);
    EarlyBegins begins;
    for (const LaunchList::One& one : kept->launches()) {
      const bool is_early = begins.Next(one);
      if (WorkOfOthers* const work = one.work(); work != nullptr) {
        machine_.Enqueue([this] { begun_.Finish(); });
        work(&machine_, kept->ArgsOf(one));
        continue;
      }
      if (launches_ != nullptr) ++(*launches_)[one.kernel];
      machine_.Enqueue([this, kept, &one, is_early] {
        begun_.Add(one, kept->ArgsOf(one), is_early);
      });
    }
    machine_.Enqueue([this, kept] { begun_.Finish(); });
  }
  // As of CUDA, a graph is what the stream was handed in the place of the work.
  using Graph = std::shared_ptr<const MachineWork::Recorded>;
  std::shared_ptr<void> Capture(const LaunchList& list) override {
    return std::make_shared<Graph>(
        std::make_shared<const MachineWork::Recorded>(
            machine_.Record([&] { Start(list); })));
  }
  void Replay(void* graph) override {
    machine_.Enqueue([recorded = *static_cast<Graph*>(graph)] {
      for (const auto& work : *recorded) work();
    });
  }

  const bool reaches_peers_;
  const std::atomic<uint64_t>* const others_;
  std::map<const void*, int>* const launches_;
  DeviceFacts facts_;
  Machine machine_;
  BegunLaunches begun_{&machine_};
  LaunchGraphs graphs_;
  LaunchSink sink_;
  uint64_t alike_ = 0;
  static constexpr uint64_t kMarks = 2;  // that are waited for
  static constexpr int64_t kNever = -1;
  static int64_t Now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  size_t& EndOf(uint64_t mark) { return ends_[mark % kMarks]; }

  size_t done_ = 0;           // of what was enqueued
  size_t ends_[kMarks] = {};  // what was enqueued before the last marks
  uint64_t marks_ = 0;
  int asked_ = 0;  // for marks
  std::vector<int64_t> moments_;
  size_t used_ = 0;
  std::map<void*, size_t> bytes_;  // of what is allocated
};

}  // namespace

int AdoptedDevice() { return adopted; }

std::unique_ptr<Runtime> OpenMachine(const MachineOptions& options) {
  return std::make_unique<MachineRuntime>(options);
}

std::unique_ptr<Runtime> Runtime::Open(int index, std::string* error) {
  if (index == 0) return OpenMachine(Schedule::kForward);
  *error = "device " + std::to_string(index) + ": the machine has one";
  return nullptr;
}

int Runtime::Count(std::string*) { return 1; }

int Runtime::Find(const std::string& id, std::string* error) {
  if (id == "GPU-0") return 0;
  *error = "GPU " + id + " is not there: the machine has GPU-0";
  return -1;
}

}  // namespace sluice::kernels::cuda
