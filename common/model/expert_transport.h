#ifndef SLUICE_COMMON_MODEL_EXPERT_OWNER_H_
#define SLUICE_COMMON_MODEL_EXPERT_OWNER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/device/step_inputs.h"
#include "kernels/reduction_tree.h"
#include "kernels/views.h"

namespace sluice {

// Which experts the rows of a step go to, [T, k] each: ids, rising within a
// row, and the router's weights.
struct Routing {
  int32_t* ids = nullptr;
  float* weights = nullptr;
  int32_t per_token = 0;  // k
};

// What a step asks of one layer's experts: row t of x [T, H], the normed
// residual, goes to routing.ids[t * k + j] with routing.weights of the same
// place. Host memory, unchanged until the answer.
struct ExpertAsk {
  int32_t layer = 0;
  kernels::ConstMatrix x;
  Routing routing;
  StepName step = {};  // whose rows these are
};

// A row of a step whose experts gave no sum, and why.
struct RowFailure {
  int32_t row = 0;
  Status status;
};

// Experts that no rank of a stage has: hosts elsewhere finish nodes of the
// fixed tree over expert ids (kernels/experts.h). Which nodes they finish
// changes no bit of the sum that all nodes are joined to. Used by rank 0's
// thread: one Begin and one Finish per sparse layer and step.
class ExpertOwner {
 public:
  virtual ~ExpertOwner() = default;
  // The nodes of `layer`'s tree that this owner finishes: aligned, rising,
  // the same in every step.
  virtual std::span<const kernels::TreeNode> nodes(int32_t layer) const = 0;
  // Takes the question, and sends it out.
  virtual void Begin(const ExpertAsk& ask) = 0;
  // Answers it: parts[i] [T, H] = node nodes(layer)[i] of every row, -0 where
  // a row asks no expert of the node. Rows that could not be answered are
  // returned, rising; their parts are some finite values.
  virtual std::vector<RowFailure> Finish(
      const ExpertAsk& ask, std::span<const kernels::Matrix> parts) = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_EXPERT_OWNER_H_
