#include "kernels/route.h"

#include <algorithm>
#include <array>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {
namespace {

using Score = RouterRule::Score;

// The index in [begin, end) of the largest of `values` that is not taken, the
// lower one on ties; -1 if all are taken.
int32_t Best(const float* values, const std::vector<uint8_t>& taken,
             int32_t begin, int32_t end) {
  int32_t best = -1;
  for (int32_t e = begin; e < end; ++e) {
    if (taken[e] != 0) continue;
    if (best < 0 || values[e] > values[best]) best = e;
  }
  return best;
}

// One token's routing; keeps its buffers from token to token.
class Router {
 public:
  Router(const cpu::Ops& ops, const RouterRule& rule, const float* correction)
      : ops_(ops),
        rule_(rule),
        correction_(correction),
        scores_(rule.num_experts),
        choices_(rule.num_experts),
        group_scores_(rule.num_groups),
        taken_(rule.num_experts) {}

  void Run(const float* logits, int32_t* ids, float* weights) {
    SetScores(logits);
    for (int32_t e = 0; e < rule_.num_experts; ++e) {
      choices_[e] =
          correction_ == nullptr ? scores_[e] : scores_[e] + correction_[e];
    }
    if (rule_.num_groups > 1) DropGroups();
    std::fill(taken_.begin(), taken_.end(), 0);
    for (int32_t j = 0; j < rule_.per_token; ++j) {
      const int32_t e = Best(choices_.data(), taken_, 0, rule_.num_experts);
      taken_[e] = 1;
      ids[j] = e;
      weights[j] = scores_[e];
    }
    Weigh(weights);
    SortById(ids, weights);
  }

 private:
  void SetScores(const float* logits) {
    const int64_t n = rule_.num_experts;
    switch (rule_.score) {
      case Score::kSigmoid:
        return ops_.sigmoid(logits, scores_.data(), n);
      case Score::kSoftmax: {
        const float max = ops_.max(logits, n);
        const float sum = ops_.sum_exp(logits, max, n);
        ops_.exp_all(logits, max, scores_.data(), n);
        for (float& score : scores_) score /= sum;
        return;
      }
      case Score::kSoftmaxOfSelected:
        std::copy_n(logits, n, scores_.begin());
        return;
    }
  }

  void DropGroups() {
    const int32_t size = rule_.num_experts / rule_.num_groups;
    std::fill(taken_.begin(), taken_.end(), 0);
    for (int32_t g = 0; g < rule_.num_groups; ++g) {
      const int32_t end = (g + 1) * size;
      const int32_t first = Best(choices_.data(), taken_, g * size, end);
      group_scores_[g] = choices_[first];
      if (rule_.group_best == 1) continue;
      taken_[first] = 1;
      const int32_t second = Best(choices_.data(), taken_, g * size, end);
      group_scores_[g] += choices_[second];
    }
    std::fill(taken_.begin(), taken_.end(), 0);
    for (int32_t i = 0; i < rule_.groups_per_token; ++i) {
      taken_[Best(group_scores_.data(), taken_, 0, rule_.num_groups)] = 1;
    }
    for (int32_t g = 0; g < rule_.num_groups; ++g) {
      if (taken_[g] != 0) continue;
      std::fill_n(choices_.begin() + g * size, size, 0.0f);
    }
  }

  // Scores of the chosen, largest choice first, to weights.
  void Weigh(float* weights) const {
    const int32_t k = rule_.per_token;
    const bool selected = rule_.score == Score::kSoftmaxOfSelected;
    if (selected) ops_.exp_all(weights, weights[0], weights, k);
    if (selected || rule_.normalise) {
      float sum = 0.0f;
      for (int32_t j = 0; j < k; ++j) sum += weights[j];
      if (!selected) sum += rule_.sum_floor;
      for (int32_t j = 0; j < k; ++j) weights[j] /= sum;
    }
    for (int32_t j = 0; j < k; ++j) weights[j] *= rule_.scale;
  }

  void SortById(int32_t* ids, float* weights) const {
    for (int32_t i = 1; i < rule_.per_token; ++i) {
      for (int32_t j = i; j > 0 && ids[j] < ids[j - 1]; --j) {
        std::swap(ids[j], ids[j - 1]);
        std::swap(weights[j], weights[j - 1]);
      }
    }
  }

  const cpu::Ops& ops_;
  const RouterRule& rule_;
  const float* const correction_;
  std::vector<float> scores_;
  std::vector<float> choices_;
  std::vector<float> group_scores_;
  std::vector<uint8_t> taken_;  // experts, or groups
};

}  // namespace

void Route(const Context& context, ConstMatrix logits, const RouterRule& rule,
           const float* correction, int32_t* ids, float* weights) {
  SLUICE_CHECK(logits.cols == rule.num_experts);
  SLUICE_CHECK(1 <= rule.per_token && rule.per_token <= rule.num_experts);
  SLUICE_CHECK(rule.per_token <= kMaxExpertsPerToken);
  SLUICE_CHECK(1 <= rule.groups_per_token &&
               rule.groups_per_token <= rule.num_groups);
  SLUICE_CHECK(rule.num_groups == 1 ||
               (rule.num_experts % rule.num_groups == 0 &&
                rule.num_experts >= 2 * rule.num_groups));
  SLUICE_CHECK(rule.group_best == 1 || rule.group_best == 2);
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const int64_t work = logits.rows * logits.cols * (rule.per_token + 16);
  const int tasks = cpu::NumTasks(context, work);
  ParallelFor(context, tasks, [&](int task) {
    Router router(ops, rule, correction);
    const cpu::Range tokens = cpu::PartOf(logits.rows, task, tasks, 1);
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      router.Run(logits.row(t), ids + t * rule.per_token,
                 weights + t * rule.per_token);
    }
  });
}

}  // namespace sluice::kernels
