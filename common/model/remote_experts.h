#ifndef SLUICE_COMMON_MODEL_REMOTE_EXPERTS_H_
#define SLUICE_COMMON_MODEL_REMOTE_EXPERTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/device/host_mirror.h"
#include "common/model/expert_transport.h"

namespace sluice {

// Carries a rank's rows to an ExpertTransport and its sums back to the device.
// Used by the rank's thread, within a step.
class RemoteExperts {
 public:
  // `x` [T, H], `routing` [T, k] and `sums` ([T, H] each) must be as large as
  // the largest step; there are as many sums as the most nodes of a layer of
  // the transport. All, the backend and the transport must outlive it.
  RemoteExperts(Backend* backend, ExpertTransport* transport, DeviceMatrix x,
                const DeviceRouting& routing,
                std::span<const DeviceMatrix> sums);

  std::span<const kernels::TreeNode> nodes(int32_t layer) const {
    return transport_.nodes(layer);
  }
  // Dispatches the first `rows` rows to `layer`'s experts. Syncs the device.
  void Dispatch(int32_t layer, int32_t rows, const StepHeader& step);
  // Waits for the hosts and writes one sum for each node of the layer. Returns
  // the rows without an answer, rising.
  std::vector<RowFailure> Combine();

 private:
  Backend& backend_;
  ExpertTransport& transport_;
  HostMirror x_;
  HostMirror ids_;
  HostMirror weights_;
  std::vector<HostMirror> sums_;
  RoutedRows routed_;  // from Dispatch to Combine
  std::vector<kernels::Matrix> parts_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_REMOTE_EXPERTS_H_
