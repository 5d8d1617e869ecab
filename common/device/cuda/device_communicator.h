#ifndef SLUICE_COMMON_DEVICE_CUDA_DEVICE_COMMUNICATOR_H_
#define SLUICE_COMMON_DEVICE_CUDA_DEVICE_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/device/collective_times.h"
#include "common/device/cuda/collective_clock.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/reduction_tree.h"
#include "kernels/views.h"

namespace sluice {

// One rank's end of what the ranks of a stage sum and gather, used by that
// rank's thread. Every rank calls the same operations in the same order;
// matrices are the rank's device's. Sums go through the fixed tree of
// kernels/reduction_tree.h, so that every implementation gives the same bits.
// An operation takes effect in the order of the rank's stream. The runtime that
// an implementation was made with must outlive it.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;

  // A step begins. `is_new`: none like it came before, so that ranks allocate
  // memory in it. All ranks say the same.
  virtual void BeginStep(bool /*is_new*/) {}
  // A copy ends the step's list of launches here.
  virtual void NoteCopy() {}
  // Whether a rank noted one between collectives of the present step, which is
  // new.
  virtual bool step_is_cut() const { return false; }

  // As Backend::ReduceTree.
  virtual void ReduceTree(int32_t num_leaves,
                          std::span<const kernels::TreeNode> nodes,
                          std::span<const kernels::Matrix> parts,
                          kernels::Matrix out) = 0;

  // Rank 0 gets, in out, every rank's `part` [T, n] at columns [col_begin,
  // col_begin + n); other ranks pass an empty out.
  virtual void GatherColumns(kernels::ConstMatrix part, int64_t col_begin,
                             kernels::Matrix out) = 0;

  // The rank's stream has done what was enqueued, or, with `goes_on`, all but
  // what is of a later step.
  virtual void OnSynced(bool /*goes_on*/) {}

  // Whether ranks may enqueue a step while the one before runs: no collective
  // waits for a device.
  virtual bool overlaps_steps() const = 0;

  // All of the present step is enqueued.
  void SubmitStep() { clock_.SubmitStep(); }
  // Returns this rank's times of the oldest step that was submitted and not
  // taken, and that its stream has done; zero for one rank.
  CollectiveTimes TakeTimes() { return clock_.TakeTimes(); }

 protected:
  // `spans`: as CollectiveClock's.
  DeviceCommunicator(kernels::cuda::Runtime* runtime, size_t spans)
      : clock_(runtime, spans) {}

  CollectiveClock clock_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_DEVICE_COMMUNICATOR_H_
