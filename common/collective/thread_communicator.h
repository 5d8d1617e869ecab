#ifndef SLUICE_COMMON_COLLECTIVE_THREAD_COMMUNICATOR_H_
#define SLUICE_COMMON_COLLECTIVE_THREAD_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/collective/communicator.h"
#include "common/collective/join_parts.h"

namespace sluice {

// A point where a fixed number of threads meet. Waiting threads spin for
// `spins` rounds and then sleep, so that they get out of the way of those
// who still work.
class MeetingPoint {
 public:
  MeetingPoint(int num_threads, int spins)
      : num_threads_(num_threads), spins_(spins) {}
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  // Returns when all threads have called it; what they wrote before is seen
  // by all after.
  void Arrive();

 private:
  const int num_threads_;
  const int spins_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> generation_{0};
};

class ThreadCommunicator;

// Ranks that are threads of one process and share its memory. Makes one
// ThreadCommunicator per rank; must outlive them.
class ThreadCommunicatorGroup {
 public:
  explicit ThreadCommunicatorGroup(int world_size);
  ~ThreadCommunicatorGroup();
  ThreadCommunicatorGroup(const ThreadCommunicatorGroup&) = delete;
  ThreadCommunicatorGroup& operator=(const ThreadCommunicatorGroup&) = delete;

  int world_size() const { return static_cast<int>(slots_.size()); }
  // The communicator of `rank`; used by that rank's thread alone.
  Communicator* rank(int rank);

 private:
  friend class ThreadCommunicator;
  // What a rank shows the others between two meetings.
  struct alignas(64) Slot {
    std::span<const kernels::TreeNode> nodes;
    std::span<const kernels::ConstMatrix> parts;
    kernels::Matrix out;
  };

  MeetingPoint meeting_;
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<ThreadCommunicator>> ranks_;
};

// One rank of the group. ReduceTree: every rank joins a slice of the columns
// of all ranks' nodes and writes it into every rank's out, so the work is
// shared and nothing is copied twice.
class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadCommunicatorGroup* group, int rank)
      : group_(group), rank_(rank) {}

  int rank() const override { return rank_; }
  int world_size() const override { return group_->world_size(); }
  void ReduceTree(int32_t num_leaves, std::span<const kernels::TreeNode> nodes,
                  std::span<const kernels::ConstMatrix> parts,
                  kernels::Matrix out) override;
  void GatherColumns(kernels::ConstMatrix part, int64_t col_begin,
                     kernels::Matrix out) override;
  void Barrier() override { group_->meeting_.Arrive(); }
  CollectiveTimes TakeTimes() override {
    return std::exchange(times_, CollectiveTimes());
  }

 private:
  // A meeting within an operation, which counts as waiting.
  void Meet();
  // Joins columns [begin, end) of all ranks' nodes into all ranks' outs.
  void JoinColumns(int32_t num_leaves, int64_t begin, int64_t end);

  ThreadCommunicatorGroup* const group_;
  const int rank_;
  CollectiveTimes times_;
  // Scratch of JoinColumns: all ranks' nodes, rising; one row's values.
  std::vector<std::pair<kernels::TreeNode, kernels::ConstMatrix>> parts_;
  std::vector<NodePart> row_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_COLLECTIVE_THREAD_COMMUNICATOR_H_
