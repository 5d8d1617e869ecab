#include "common/model/decoder_layer.h"

#include <utility>

namespace sluice {
namespace {

// Returns y weight^T, the weight's columns cut over the ranks.
DeviceMatrix RowParallel(Backend& device, DeviceMatrix y, const Weight& weight,
                         const RowShards& shards,
                         const std::vector<DeviceMatrix>& sums) {
  device.RowParallel(y, weight, shards, sums);
  device.ReduceTree(shards.num_leaves, shards.nodes, sums, sums[0]);
  return sums[0];
}

// act(W_gate x) * W_up x, of the normed x.
void RunGateUp(Backend& device, DeviceMatrix x, const NormSpec& norm,
               const Weight& weight, DeviceMatrix gate_up, DeviceMatrix mlp) {
  device.Linear(x, norm, weight, /*bias=*/nullptr, gate_up);
  device.Gate(Activation(), gate_up, mlp);
}

// Returns the weighted sum of the experts that each row of a.normed asks,
// plus the shared expert's output.
DeviceMatrix MixExperts(const RankContext& rank, const StageLayer& layer,
                        const LayerActivations& a) {
  Backend& device = rank.backend;
  const MoeWeights& weights = layer.weights.moe;
  const ExpertJoin& join = a.experts[layer.index];
  device.Linear(a.normed, NormSpec(), *weights.router,
                weights.router_bias.data(), a.router_logits);
  device.Route(a.router_logits, layer.spec.router, weights.correction.data(),
               a.routing);
  RemoteExperts* const remote = a.remote_experts.get();
  if (remote != nullptr) {
    remote->Dispatch(join.layer, static_cast<int32_t>(a.normed.rows),
                     rank.step);
  }

  // Remote experts are at work meanwhile.
  const bool has_shared = weights.shared.gate_up != nullptr;
  DeviceMatrix shared;
  if (has_shared) {
    RunGateUp(device, a.normed, NormSpec(), *weights.shared.gate_up,
              a.shared_gate_up, a.shared_mlp);
    shared = RowParallel(device, a.shared_mlp, *weights.shared.down,
                         rank.plan.shared_mlp, a.shared_sums);
  }
  a.own_experts->Run(layer.index, a.normed, a.routing, layer.spec.experts,
                     join.own);

  if (remote != nullptr) {
    for (RowFailure& row : remote->Combine()) {
      rank.failed.push_back(std::move(row));
    }
  }
  device.ReduceTree(rank.plan.num_experts, join.nodes, join.sums, a.mixed);
  if (has_shared) {
    device.Add(shared, /*bias=*/nullptr, NormSpec(), a.mixed);
  }
  return a.mixed;
}

}  // namespace

void RunDecoderLayer(const RankContext& rank, const StageLayer& layer,
                     const LayerActivations& a, DeviceMatrix x) {
  Backend& device = rank.backend;
  const RankPlan& plan = rank.plan;
  const AttentionSpec& attention = layer.spec.attention;
  const LayerWeights& weights = layer.weights;
  const auto norm = [&layer](const DeviceVector& weight) {
    return NormSpec{weight.data(), layer.spec.norm_eps};
  };

  // x += W_o attention(rope(W_q n), rope(W_k n), W_v n), n = norm(x)
  device.Linear(x, norm(weights.attention_norm), *weights.qkv,
                weights.qkv_bias.data(), a.qkv);
  device.RopeStoreKv(attention, norm(weights.q_norm), norm(weights.k_norm),
                     a.qkv, layer.kv);
  device.Attention(attention, a.qkv, weights.sinks.data(), layer.kv,
                   a.attention);
  const DeviceMatrix attended = RowParallel(device, a.attention, *weights.o,
                                            plan.attention, a.attention_sums);
  device.Add(attended, weights.o_bias.data(), norm(weights.post_attention_norm),
             x);

  // x += experts(n), n = norm(x)
  if (weights.is_sparse()) {
    device.Norm(x, norm(weights.mlp_norm), a.normed);
    device.Add(MixExperts(rank, layer, a), /*bias=*/nullptr, NormSpec(), x);
    return;
  }
  // x += W_down (silu(W_gate n) * W_up n), n = norm(x)
  RunGateUp(device, x, norm(weights.mlp_norm), *weights.mlp.gate_up, a.gate_up,
            a.mlp);
  const DeviceMatrix changed =
      RowParallel(device, a.mlp, *weights.mlp.down, plan.mlp, a.mlp_sums);
  device.Add(changed, /*bias=*/nullptr, norm(weights.post_mlp_norm), x);
}

}  // namespace sluice
