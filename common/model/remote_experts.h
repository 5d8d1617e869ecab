#ifndef SLUICE_COMMON_MODEL_REMOTE_EXPERTS_H_
#define SLUICE_COMMON_MODEL_REMOTE_EXPERTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/device/host_mirror.h"
#include "common/model/expert_owner.h"

namespace sluice {

// The way of a rank's rows to an ExpertOwner, and of the owner's sums back to
// the device. Used by the rank's thread, within a step.
class RemoteExperts {
 public:
  // `x` [T, H], `routing` [T, k] and `sums` ([T, H] each, as many as a layer
  // of the owner has nodes at the most) as large as a step may be. All, and
  // the backend and the owner, must outlive it.
  RemoteExperts(Backend* backend, ExpertOwner* owner, DeviceMatrix x,
                const DeviceRouting& routing,
                std::span<const DeviceMatrix> sums);

  std::span<const kernels::TreeNode> nodes(int32_t layer) const {
    return owner_.nodes(layer);
  }
  // Asks `layer`'s experts about the first `rows` rows. Waits for the device.
  void Begin(int32_t layer, int32_t rows, const StepName& step);
  // Waits for the answer; the first sums, one per node of the layer, are the
  // nodes'. Returns the rows that got none, rising.
  std::vector<RowFailure> Finish();

 private:
  Backend& backend_;
  ExpertOwner& owner_;
  HostMirror x_;
  HostMirror ids_;
  HostMirror weights_;
  std::vector<HostMirror> sums_;
  ExpertAsk ask_;  // at hand
  std::vector<kernels::Matrix> parts_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_REMOTE_EXPERTS_H_
