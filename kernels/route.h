#ifndef SLUICE_KERNELS_ROUTE_H_
#define SLUICE_KERNELS_ROUTE_H_

#include <cstdint>

#include "kernels/context.h"
#include "kernels/views.h"

namespace sluice::kernels {

// The most experts of one token.
inline constexpr int32_t kMaxExpertsPerToken = 64;

// How a router turns its logits into experts and weights.
struct RouterRule {
  enum class Score : uint8_t {
    kSigmoid,            // s = 1 / (1 + Exp(-logit))
    kSoftmax,            // s = softmax over all experts
    kSoftmaxOfSelected,  // chosen by logit; weights = softmax of the chosen
  };
  Score score = Score::kSoftmax;
  int32_t num_experts = 0;  // E
  int32_t per_token = 0;    // k: at most E and kMaxExpertsPerToken
  // Above 1: the number of groups of equal size (two experts at least). The
  // choices of all but the best groups_per_token groups count as 0. A group's
  // score is the sum of its `group_best` best choices.
  int32_t num_groups = 1;
  int32_t groups_per_token = 1;
  // Divide the weights by their sum (+ sum_floor), before `scale`. Without
  // meaning for kSoftmaxOfSelected.
  bool normalise = false;
  float scale = 1.0f;
  float sum_floor = 1e-20f;
  int32_t group_best = 2;  // or 1
};

// For every row of logits [T, E]: choice[e] = s[e] + correction[e] (nothing
// is added if correction is null); the k largest choices, the lower id on
// ties; weight = s of the chosen, without the correction, summed for the
// normalisation from the largest choice down. Writes the ids of row t, rising,
// to ids[t * k], ids[t * k + 1], ... and their weights to the same places.
// Logits that are NaN give some k ids and NaN weights.
void Route(const Context& context, ConstMatrix logits, const RouterRule& rule,
           const float* correction, int32_t* ids, float* weights);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_ROUTE_H_
