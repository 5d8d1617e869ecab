#include "common/model/decoder_layer.h"

namespace sluice {
namespace {

// x += y weight^T, the weight's columns cut over the ranks.
void AddRowParallel(const RankContext& rank, kernels::ConstMatrix y,
                    const Weight& weight, const RowShards& shards,
                    const PartialSums& sums, kernels::Matrix x) {
  const kernels::Matrix sum = sums.out[0];
  rank.backend.RowParallel(y, weight, shards, sums.out);
  rank.communicator.ReduceTree(shards.num_leaves, shards.nodes, sums.in, sum);
  rank.backend.Add(sum, x);
}

}  // namespace

void RunDecoderLayer(const RankContext& rank, const LayerWeights& weights,
                     const LayerKv& kv, const LayerActivations& a,
                     kernels::Matrix x) {
  Backend& device = rank.backend;
  const RankPlan& plan = rank.plan;

  // x += W_o attention(rope(W_q n), rope(W_k n), W_v n), n = norm(x)
  device.NormLinear(x, weights.attention_norm->data(), *weights.qkv, a.qkv);
  device.RopeStoreKv(a.qkv, kv);
  device.Attention(a.qkv, kv, a.attention);
  AddRowParallel(rank, a.attention, *weights.o, plan.attention,
                 a.attention_sums, x);

  // x += W_down (silu(W_gate n) * W_up n), n = norm(x)
  device.NormLinear(x, weights.mlp_norm->data(), *weights.gate_up, a.gate_up);
  device.SiluMul(a.gate_up, a.mlp);
  AddRowParallel(rank, a.mlp, *weights.down, plan.mlp, a.mlp_sums, x);
}

}  // namespace sluice
