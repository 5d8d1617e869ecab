#ifndef SLUICE_COMMON_MODEL_EXPERT_TRANSPORT_H_
#define SLUICE_COMMON_MODEL_EXPERT_TRANSPORT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/device/step_inputs.h"
#include "kernels/reduction_tree.h"
#include "kernels/views.h"

namespace sluice {

// The experts of a step's rows, [T, k] each: ids, rising within a row, and the
// router's weights.
struct Routing {
  int32_t* ids = nullptr;
  float* weights = nullptr;
  int32_t per_token = 0;  // k
};

// The rows of a step that go to one layer's experts: row t of x [T, H], the
// normed residual, goes to expert routing.ids[t * k + j] with weight
// routing.weights[t * k + j]. Host memory, unchanged from Dispatch to Combine.
struct RoutedRows {
  int32_t layer = 0;
  kernels::ConstMatrix x;
  Routing routing;
  StepHeader step = {};  // the step of these rows
};

// A row of a step without its experts' sum, and the reason.
struct RowFailure {
  int32_t row = 0;
  Status status;
};

// Remote experts: hosts outside the stage finish nodes of the fixed tree over
// expert ids (kernels/experts.h). The choice of nodes changes no bit of the
// joined sum. Used by rank 0's thread: one Dispatch and one Combine per sparse
// layer and step.
class ExpertTransport {
 public:
  virtual ~ExpertTransport() = default;
  // Returns the nodes of `layer`'s tree that the hosts finish: aligned, rising,
  // the same in every step.
  virtual std::span<const kernels::TreeNode> nodes(int32_t layer) const = 0;
  // Sends `routed` to the hosts without waiting for them.
  virtual void Dispatch(const RoutedRows& routed) = 0;
  // Waits for the sums: parts[i] [T, H] = node nodes(layer)[i] of every row, -0
  // for a row without an expert in the node. Returns the rows without an
  // answer, rising; their parts are arbitrary finite values.
  virtual std::vector<RowFailure> Combine(
      const RoutedRows& routed, std::span<const kernels::Matrix> parts) = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_EXPERT_TRANSPORT_H_
