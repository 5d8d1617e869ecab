#ifndef SLUICE_COMMON_MODEL_MOE_H_
#define SLUICE_COMMON_MODEL_MOE_H_

#include <span>
#include <vector>

#include "common/model/backend.h"
#include "common/model/expert_weights.h"

namespace sluice {

// What a step asks of one layer's experts: row t of x [T, H], the normed
// residual, goes to routing.ids[t * k + j] with routing.weights of the same
// place, ids rising within a row. Device memory, unchanged until the answer.
struct ExpertAsk {
  int32_t layer = 0;
  kernels::ConstMatrix x;
  Routing routing;
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
  // a row asks no expert of the node.
  virtual void Finish(const ExpertAsk& ask,
                      std::span<const kernels::Matrix> parts) = 0;
};

// The experts that a rank holds itself.
class LocalExperts final : public ExpertOwner {
 public:
  // One layer's, with the nodes that they finish (maybe none).
  struct Layer {
    const ExpertWeights* experts = nullptr;
    std::vector<kernels::TreeNode> nodes;
  };
  // `layers[i]` is layer first_layer + i. The backend and the weights must
  // outlive it.
  LocalExperts(Backend* backend, int32_t first_layer,
               std::vector<Layer> layers);

  std::span<const kernels::TreeNode> nodes(int32_t layer) const override;
  void Begin(const ExpertAsk& ask) override;
  void Finish(const ExpertAsk& ask,
              std::span<const kernels::Matrix> parts) override;

 private:
  const Layer& at(int32_t layer) const {
    return layers_[static_cast<size_t>(layer - first_layer_)];
  }

  Backend& backend_;
  const int32_t first_layer_;
  const std::vector<Layer> layers_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_MOE_H_
