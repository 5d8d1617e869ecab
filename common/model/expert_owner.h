#ifndef SLUICE_COMMON_MODEL_EXPERT_OWNER_H_
#define SLUICE_COMMON_MODEL_EXPERT_OWNER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/device/backend.h"
#include "common/model/expert_weights.h"

namespace sluice {

// What a step asks of one layer's experts: row t of x [T, H], the normed
// residual, goes to routing.ids[t * k + j] with routing.weights of the same
// place, ids rising within a row. Device memory, unchanged until the answer.
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

// Somebody who has experts and finishes nodes of the fixed tree over their
// ids (kernels/experts.h): this rank itself, or hosts elsewhere. Which nodes
// each finishes changes no bit of the sum that they are joined to. Used by
// its rank's thread: one Begin and one Finish per sparse layer and step.
class ExpertOwner {
 public:
  virtual ~ExpertOwner() = default;
  // The nodes of `layer`'s tree that this owner finishes: aligned, rising,
  // the same in every step.
  virtual std::span<const kernels::TreeNode> nodes(int32_t layer) const = 0;
  // Takes the question; what is slow elsewhere starts here.
  virtual void Begin(const ExpertAsk& ask) = 0;
  // Answers it: parts[i] [T, H] = node nodes(layer)[i] of every row, -0 where
  // a row asks no expert of the node. Rows that could not be answered are
  // returned, rising; their parts are some finite values.
  virtual std::vector<RowFailure> Finish(
      const ExpertAsk& ask, std::span<const kernels::Matrix> parts) = 0;
};

// The experts that a rank holds itself.
class LocalExperts final : public ExpertOwner {
 public:
  // `layers[i]`: runs of experts of layer first_layer + i, rising, of the
  // `num_experts` that it has; maybe none. The backend and the weights must
  // outlive it.
  using Runs = std::vector<const ExpertWeights*>;
  LocalExperts(Backend* backend, int32_t num_experts, int32_t first_layer,
               const std::vector<Runs>& layers);

  std::span<const kernels::TreeNode> nodes(int32_t layer) const override;
  void Begin(const ExpertAsk& ask) override;
  // Never fails.
  std::vector<RowFailure> Finish(
      const ExpertAsk& ask, std::span<const kernels::Matrix> parts) override;

 private:
  struct Layer {
    Runs runs;
    std::vector<size_t> nodes_of_run;
    std::vector<kernels::TreeNode> nodes;  // of all runs
  };
  const Layer& at(int32_t layer) const {
    return layers_[static_cast<size_t>(layer - first_layer_)];
  }

  Backend& backend_;
  const int32_t first_layer_;
  std::vector<Layer> layers_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_EXPERT_OWNER_H_
