#ifndef SLUICE_KERNELS_CUDA_RUNTIME_LAUNCH_GRAPHS_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_LAUNCH_GRAPHS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "kernels/cuda/runtime/launch_list.h"

namespace sluice::kernels::cuda {

// How often lists were begun launch by launch, made to a graph, and replayed.
struct GraphCounts {
  uint64_t started = 0;
  uint64_t captured = 0;
  uint64_t replayed = 0;
};

// A device's graphs of lists of launches that come again: a decode step of as
// many sequences does the same with the same buffers every time, and only what
// is in them differs. A list that comes a second time becomes a graph. The
// graphs that were used last are kept, as far as their launches go: every copy
// through the host's memory, and every gather of NCCL that is not captured,
// cuts a step's list, so that a step of several ranks may be some hundred
// graphs. Used by one thread.
class LaunchGraphs {
 public:
  // Graphs that are kept hold at most so many launches, each kGraphLaunches
  // more for what a graph takes beside them. A decode step of 32 layers has
  // some 500: 64 batch sizes fit in one list each, 24 in 66 lists.
  static constexpr size_t kMostLaunches = size_t{1} << 16;
  static constexpr size_t kGraphLaunches = 32;
  // Graphs with work of others that are kept.
  static constexpr size_t kMostAlike = 64;

  // What a device does with a list. `Capture` does not begin it; it calls work
  // of others once, and every Replay does again what that enqueued.
  class Device {
   public:
    virtual ~Device() = default;
    virtual void Start(const LaunchList& list) = 0;
    virtual std::shared_ptr<void> Capture(const LaunchList& list) = 0;
    virtual void Replay(void* graph) = 0;
  };

  explicit LaunchGraphs(Device* device) : device_(*device) {}

  // Begins the list's launches. One with work of others is known by `alike`,
  // see Runtime::GatherLaunches; 0: it becomes no graph. A list that is not the
  // one that the number had is captured again.
  void Begin(const LaunchList& list, uint64_t alike = 0);
  // Forgets all graphs, and with them what they hold of work of others.
  void Drop();
  const GraphCounts& counts() const { return counts_; }

 private:
  struct Kept {
    LaunchList list;
    std::shared_ptr<void> graph;  // null: the list came once, and is not kept
    uint64_t used = 0;
  };
  void BeginAlike(const LaunchList& list, uint64_t alike);
  // Forgets what has a graph, or what has none, but for the half used last.
  void DropOlder(bool with_graph);

  Device& device_;
  std::unordered_map<uint64_t, Kept> kept_;  // by hash
  std::unordered_map<uint64_t, Kept> alike_;
  size_t graphs_ = 0;
  size_t launches_ = 0;  // of all graphs, kGraphLaunches for each among them
  uint64_t begun_ = 0;
  GraphCounts counts_;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_LAUNCH_GRAPHS_H_
