#ifndef SLUICE_KERNELS_CUDA_SHARED_ROUTE_WARP_H_
#define SLUICE_KERNELS_CUDA_SHARED_ROUTE_WARP_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/shared/math.h"
#include "kernels/cuda/shared/route.h"

namespace sluice::kernels::cuda {

struct RouteArgs {
  ConstMatrix logits;
  RouterRule rule;
  const float* correction;
  RoutedRows to;
};

// A warp's routing of a token. A lane keeps kOwn experts in registers, each 32
// behind the one before; 0: all are in shared memory, as groups of experts,
// more experts and choices that are no numbers are anyway.
template <int kOwn>
struct RouteWarp {
  static constexpr int kArray = kOwn > 0 ? kOwn : 1;
  using Args = RouteArgs;
  using Corrections = float[kArray];
  // A token's experts in shared memory.
  struct Row {
    Shared<float> scores;    // [E]
    Shared<float> choices;   // [E]
    Shared<int32_t> taken;   // [E]: experts, or groups
    Shared<float> groups;    // [num_groups]
    Shared<float> weights;   // [k], largest choice first, then by rising id
    Shared<int32_t> chosen;  // [k], the same
  };
  static size_t SharedBytes(const RouterRule& rule) {
    const auto array = [](int64_t n) {
      return (static_cast<size_t>(n) * sizeof(float) + 15) / 16 * 16;
    };
    return 3 * array(rule.num_experts) + array(rule.num_groups) +
           2 * array(rule.per_token);
  }

  // The lane's, which are there before the inputs.
  static SLUICE_DEVICE void Load(const Block& block, const Args& a,
                                 Corrections& corrections) {
    SLUICE_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const int32_t e = block.lane() + i * kWarpLanes;
      corrections[i] = 0.0f;
      if (a.correction != nullptr && e < a.rule.num_experts) {
        corrections[i] = a.correction[e];
      }
    }
  }
  static SLUICE_DEVICE void Run(Block& block, const Args& a, int64_t token,
                                const Corrections& corrections) {
    const int32_t n = a.rule.num_experts;
    const int32_t k = a.rule.per_token;
    const auto scores = block.Allocate<float>(n);
    const auto choices = block.Allocate<float>(n);
    const auto taken = block.Allocate<int32_t>(n);
    const auto groups = block.Allocate<float>(a.rule.num_groups);
    const auto weights = block.Allocate<float>(k);
    const auto chosen = block.Allocate<int32_t>(k);
    const Row row = {scores, choices, taken, groups, weights, chosen};
    if constexpr (kOwn > 0) {
      if (RunInRegisters(block, a, token, corrections)) return;
    }
    SetScores(block, a.rule, a.logits.data + token * a.logits.stride, scores);
    for (int32_t e = block.lane(); e < n; e += kWarpLanes) {
      const float score = scores.Get(e);
      choices.Set(e, a.correction == nullptr ? score : score + a.correction[e]);
    }
    if (a.rule.num_groups > 1) DropGroups(block, a.rule, row);
    ClearTaken(block, n, taken);
    for (int32_t j = 0; j < k; ++j) {
      const int32_t e = Take(block, choices, taken, 0, n);
      if (block.lane() == 0) {
        chosen.Set(j, e);
        weights.Set(j, scores.Get(e));
      }
    }
    block.SyncWarp();
    if (k <= kWarpLanes) {
      const bool own = block.lane() < k;
      return WeighFew(block, a, token, own ? weights.Get(block.lane()) : 0.0f,
                      own ? chosen.Get(block.lane()) : 0);
    }
    int32_t* const ids = a.to.ids + token * k;
    float* const to = a.to.weights + token * k;
    if (block.lane() == 0) Weigh(a.rule, row);
    block.SyncWarp();
    for (int32_t j = block.lane(); j < k; j += kWarpLanes) {
      ids[j] = chosen.Get(j);
      to[j] = weights.Get(j);
    }
  }

  // False, and nothing is stored, if a choice is no number.
  static SLUICE_DEVICE bool RunInRegisters(Block& block, const Args& a,
                                           int64_t token,
                                           const Corrections& corrections) {
    const int32_t n = a.rule.num_experts;
    const float* const logits = a.logits.data + token * a.logits.stride;
    float scores[kOwn];
    SLUICE_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const int32_t e = block.lane() + i * kWarpLanes;
      scores[i] = e < n ? logits[e] : -Infinity();
    }
    ScoreOwn(block, a.rule, scores);
    uint32_t orders[kOwn];
    bool numbers = true;
    SLUICE_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const bool exists = block.lane() + i * kWarpLanes < n;
      const float choice =
          a.correction == nullptr ? scores[i] : scores[i] + corrections[i];
      numbers = numbers && (!exists || choice == choice);
      orders[i] = exists ? OrderOf(choice) : 0;
    }
    if (block.Ballot(!numbers) != 0) return false;
    float weight = 0.0f;
    int32_t id = 0;
    for (int32_t j = 0; j < a.rule.per_token; ++j) {
      float score = 0.0f;
      const int32_t e = TakeOwn(block, scores, orders, score);
      if (block.lane() != j) continue;
      weight = score;
      id = e;
    }
    WeighFew(block, a, token, weight, id);
    return true;
  }

  // A word that is above those of smaller numbers, and above 0; both zeros
  // have one.
  static SLUICE_DEVICE uint32_t OrderOf(float x) {
    const auto bits = BitCast<uint32_t>(x + 0.0f);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  }
  static SLUICE_DEVICE float NumberOf(uint32_t order) {
    return BitCast<float>((order & 0x80000000u) != 0 ? order & 0x7FFFFFFFu
                                                     : ~order);
  }

  // Logits become scores.
  static SLUICE_DEVICE void ScoreOwn(Block& block, const RouterRule& rule,
                                     float (&scores)[kArray]) {
    if (rule.score == RouterRule::Score::kSigmoid) {
      SLUICE_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        scores[i] = 1.0f / (1.0f + Exp(-scores[i]));
      }
    }
    if (rule.score != RouterRule::Score::kSoftmax) return;
    uint32_t most = 0;
    SLUICE_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const uint32_t order = OrderOf(scores[i]);
      most = order > most ? order : most;
    }
    const float max = NumberOf(block.Most(most));
    // The canonical sum's lanes take every sixteenth expert.
    float lane = 0.0f;
    SLUICE_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const int32_t e = block.lane() + i * kWarpLanes;
      scores[i] = Exp(scores[i] - max);
      const float next = block.ShuffleXor(scores[i], 16);
      if (e < rule.num_experts) lane = lane + scores[i];
      if (e + 16 < rule.num_experts) lane = lane + next;
    }
    const float sum = block.Shuffle(SumLanes(block, lane), 0);
    SLUICE_UNROLL
    for (int i = 0; i < kOwn; ++i) scores[i] = scores[i] / sum;
  }

  // Takes the expert whose word is the largest, the lower one of two: returns
  // it and its score. Words of those that are taken are 0.
  static SLUICE_DEVICE int32_t TakeOwn(Block& block,
                                       const float (&scores)[kArray],
                                       uint32_t (&orders)[kArray],
                                       float& score) {
    uint32_t most = 0;
    uint32_t own = ~0u;
    SLUICE_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      if (orders[i] <= most) continue;
      most = orders[i];
      own = static_cast<uint32_t>(block.lane() + i * kWarpLanes);
      score = scores[i];
    }
    const uint32_t taken = block.Least(most == block.Most(most) ? own : ~0u);
    SLUICE_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const auto e = static_cast<uint32_t>(block.lane() + i * kWarpLanes);
      if (e == taken) orders[i] = 0;
    }
    score = block.Shuffle(score, static_cast<int>(taken % kWarpLanes));
    return static_cast<int32_t>(taken);
  }

  static SLUICE_DEVICE void SetScores(Block& block, const RouterRule& rule,
                                      const float* logits,
                                      const Shared<float>& scores) {
    const int32_t n = rule.num_experts;
    float max = -Infinity();
    float sum = 1.0f;
    if (rule.score == RouterRule::Score::kSoftmax) {
      for (int32_t e = block.lane(); e < n; e += kWarpLanes) {
        max = logits[e] > max ? logits[e] : max;
      }
      for (int mask = 16; mask > 0; mask /= 2) {
        const float other = block.ShuffleXor(max, mask);
        max = other > max ? other : max;
      }
      float lane = 0.0f;
      for (int32_t e = block.lane(); block.lane() < 16 && e < n; e += 16) {
        lane = lane + Exp(logits[e] - max);
      }
      sum = block.Shuffle(SumLanes(block, lane), 0);
    }
    for (int32_t e = block.lane(); e < n; e += kWarpLanes) {
      float score = logits[e];
      if (rule.score == RouterRule::Score::kSigmoid) {
        score = 1.0f / (1.0f + Exp(-score));
      } else if (rule.score == RouterRule::Score::kSoftmax) {
        score = Exp(score - max) / sum;
      }
      scores.Set(e, score);
    }
  }

  static SLUICE_DEVICE void ClearTaken(Block& block, int32_t n,
                                       const Shared<int32_t>& taken) {
    block.SyncWarp();
    for (int32_t e = block.lane(); e < n; e += kWarpLanes) taken.Set(e, 0);
    block.SyncWarp();
  }

  // Takes the index in [begin, end) of the largest of `values` that is not
  // taken, the lower one on ties, and returns it.
  static SLUICE_DEVICE int32_t Take(Block& block, const Shared<float>& values,
                                    const Shared<int32_t>& taken, int32_t begin,
                                    int32_t end) {
    int32_t best = -1;
    float most = 0.0f;
    for (int32_t e = begin + block.lane(); e < end; e += kWarpLanes) {
      if (taken.Get(e) != 0) continue;
      const float value = values.Get(e);
      if (best >= 0 && !(value > most)) continue;
      best = e;
      most = value;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      const int32_t other = block.ShuffleXor(best, mask);
      const float value = block.ShuffleXor(most, mask);
      if (other < 0) continue;
      if (best < 0 || value > most || (!(most > value) && other < best)) {
        best = other;
        most = value;
      }
    }
    // Lanes that meet a NaN in another order may differ.
    best = block.Shuffle(best, 0);
    block.SyncWarp();  // behind what all lanes read
    if (block.lane() == 0) taken.Set(best, 1);
    block.SyncWarp();
    return best;
  }

  // Choices of all but the best groups become -infinity.
  static SLUICE_DEVICE void DropGroups(Block& block, const RouterRule& rule,
                                       const Row& row) {
    const int32_t n = rule.num_experts;
    const int32_t size = n / rule.num_groups;
    ClearTaken(block, n, row.taken);
    for (int32_t g = 0; g < rule.num_groups; ++g) {
      const int32_t end = (g + 1) * size;
      const int32_t first = Take(block, row.choices, row.taken, g * size, end);
      if (rule.group_best == 1) {
        if (block.lane() == 0) row.groups.Set(g, row.choices.Get(first));
        continue;
      }
      const int32_t second = Take(block, row.choices, row.taken, g * size, end);
      if (block.lane() == 0) {
        row.groups.Set(g, row.choices.Get(first) + row.choices.Get(second));
      }
    }
    ClearTaken(block, n, row.taken);
    for (int32_t i = 0; i < rule.groups_per_token; ++i) {
      Take(block, row.groups, row.taken, 0, rule.num_groups);
    }
    for (int32_t e = block.lane(); e < n; e += kWarpLanes) {
      if (row.taken.Get(e / size) == 0) row.choices.Set(e, -Infinity());
    }
  }

  // Stores the chosen and their weights by rising id, a lane each, which has a
  // choice: the largest is lane 0's. And the plan, if there is one.
  static SLUICE_DEVICE void WeighFew(Block& block, const Args& a, int64_t token,
                                     float weight, int32_t id) {
    constexpr int kAtOnce = 8;
    const int32_t k = a.rule.per_token;
    const bool selected = a.rule.score == RouterRule::Score::kSoftmaxOfSelected;
    const bool own = block.lane() < k;
    if (selected) weight = Exp(weight - block.Shuffle(weight, 0));
    float sum = 0.0f;
    int32_t place = 0;
    for (int32_t from = 0; from < k; from += kAtOnce) {
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const float other = block.Shuffle(weight, from + i);
        const int32_t other_id = block.Shuffle(id, from + i);
        if (from + i >= k) continue;
        sum = sum + other;
        if (other_id < id) ++place;
      }
    }
    if (!own) return;
    if (!selected) sum = sum + a.rule.sum_floor;
    const bool divides = selected || a.rule.normalise;
    a.to.ids[token * k + place] = id;
    a.to.weights[token * k + place] =
        (divides ? weight / sum : weight) * a.rule.scale;
    if (a.to.plan.groups == nullptr) return;
    a.to.plan.groups[place] = {id, place, 1};
    a.to.plan.slots[place] = place;
    a.to.plan.rows[place] = 0;
    if (place == 0) *a.to.plan.num_groups = k;
  }

  // The weights of the chosen, which are sorted by id. One thread calls.
  static SLUICE_DEVICE void Weigh(const RouterRule& rule, const Row& row) {
    const int32_t k = rule.per_token;
    const bool selected = rule.score == RouterRule::Score::kSoftmaxOfSelected;
    const float first = row.weights.Get(0);
    float sum = 0.0f;
    for (int32_t j = 0; j < k; ++j) {
      float weight = row.weights.Get(j);
      if (selected) weight = Exp(weight - first);
      row.weights.Set(j, weight);
      sum = sum + weight;
    }
    if (!selected) sum = sum + rule.sum_floor;
    const bool divides = selected || rule.normalise;
    for (int32_t j = 0; j < k; ++j) {
      const float weight = row.weights.Get(j);
      const float scaled = (divides ? weight / sum : weight) * rule.scale;
      const int32_t id = row.chosen.Get(j);
      int32_t to = j;
      for (; to > 0 && id < row.chosen.Get(to - 1); --to) {
        row.chosen.Set(to, row.chosen.Get(to - 1));
        row.weights.Set(to, row.weights.Get(to - 1));
      }
      row.chosen.Set(to, id);
      row.weights.Set(to, scaled);
    }
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_ROUTE_WARP_H_
