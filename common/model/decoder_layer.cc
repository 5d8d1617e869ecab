#include "common/model/decoder_layer.h"

#include <algorithm>

namespace sluice {
namespace {

using kernels::ConstMatrix;
using kernels::Matrix;

// Returns y weight^T, the weight's columns cut over the ranks.
Matrix RowParallel(const RankContext& rank, ConstMatrix y, const Weight& weight,
                   const RowShards& shards, const PartialSums& sums) {
  rank.backend.RowParallel(y, weight, shards, sums.out);
  rank.communicator.ReduceTree(shards.num_leaves, shards.nodes, sums.in,
                               sums.out[0]);
  return sums.out[0];
}

// Returns the weighted sum of the experts that each row of a.normed asks,
// plus the shared expert's output.
Matrix MixExperts(const RankContext& rank, const MoeWeights& weights,
                  const ExpertJoin& experts, const LayerActivations& a) {
  Backend& device = rank.backend;
  device.Linear(a.normed, *weights.router, DataOf(weights.router_bias),
                a.router_logits);
  device.Route(a.router_logits, DataOf(weights.correction), a.routing);
  const ExpertAsk ask = {experts.layer, a.normed, a.routing, rank.step};
  for (const ExpertJoin::Part& part : experts.parts) part.owner->Begin(ask);

  // Others' experts are at work meanwhile.
  const bool has_shared = weights.shared.gate_up != nullptr;
  Matrix shared;
  if (has_shared) {
    device.Linear(a.normed, *weights.shared.gate_up, /*bias=*/nullptr,
                  a.shared_gate_up);
    device.SiluMul(a.shared_gate_up, a.shared_mlp);
    shared = RowParallel(rank, a.shared_mlp, *weights.shared.down,
                         rank.plan.shared_mlp, a.shared_sums);
  }

  std::for_each(experts.parts.rbegin(), experts.parts.rend(),
                [&](const ExpertJoin::Part& part) {
                  for (RowFailure& row : part.owner->Finish(ask, part.out)) {
                    rank.failed.push_back(std::move(row));
                  }
                });
  rank.communicator.ReduceTree(rank.plan.num_experts, experts.nodes,
                               experts.sums, a.mixed);
  if (has_shared) device.Add(shared, a.mixed);
  return a.mixed;
}

}  // namespace

void RunDecoderLayer(const RankContext& rank, const LayerWeights& weights,
                     const LayerKv& kv, int32_t index,
                     const LayerActivations& a, Matrix x) {
  Backend& device = rank.backend;
  const RankPlan& plan = rank.plan;

  // x += W_o attention(rope(W_q n), rope(W_k n), W_v n), n = norm(x)
  device.NormLinear(x, DataOf(weights.attention_norm), *weights.qkv,
                    DataOf(weights.qkv_bias), a.qkv);
  device.RopeStoreKv(a.qkv, {DataOf(weights.q_norm), DataOf(weights.k_norm)},
                     kv);
  device.Attention(a.qkv, DataOf(weights.sinks), kv, a.attention);
  const Matrix attended = RowParallel(rank, a.attention, *weights.o,
                                      plan.attention, a.attention_sums);
  device.AddNormed(attended, DataOf(weights.o_bias),
                   DataOf(weights.post_attention_norm), x);

  // x += experts(n), n = norm(x)
  if (weights.is_sparse()) {
    device.Norm(x, DataOf(weights.mlp_norm), a.normed);
    device.Add(MixExperts(rank, weights.moe, a.experts[index], a), x);
    return;
  }
  // x += W_down (silu(W_gate n) * W_up n), n = norm(x)
  device.NormLinear(x, DataOf(weights.mlp_norm), *weights.mlp.gate_up,
                    /*bias=*/nullptr, a.gate_up);
  device.SiluMul(a.gate_up, a.mlp);
  const Matrix changed =
      RowParallel(rank, a.mlp, *weights.mlp.down, plan.mlp, a.mlp_sums);
  device.AddNormed(changed, /*bias=*/nullptr, DataOf(weights.post_mlp_norm), x);
}

}  // namespace sluice
