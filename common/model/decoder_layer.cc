#include "common/model/decoder_layer.h"

#include <span>
#include <utility>

namespace sluice {
namespace {

// The partial sums of a product whose columns are cut over the ranks.
std::span<const DeviceMatrix> SumsOf(const RowShards& shards,
                                     const LayerActivations& a) {
  return std::span(a.sums).first(shards.nodes.size());
}

// Returns act(W_gate n) * W_up n, n = norm(x): of the layer's MLP, or of the
// shared expert of a sparse layer.
DeviceMatrix GateMlp(Backend& device, const StageLayer& layer, DeviceMatrix x,
                     const NormSpec& norm, const LayerActivations& a) {
  const MlpWeights& weights =
      layer.weights.is_sparse() ? layer.weights.moe.shared : layer.weights.mlp;
  const DeviceMatrix mlp = a.mlp.Packed(weights.down->cols);
  device.GatedLinear(x, norm, *weights.gate_up, layer.spec.activation,
                     a.gate_up.Packed(weights.gate_up->rows), mlp);
  return mlp;
}

// x += the weighted sum of the experts of each row of a.normed = norm(x), plus
// the shared expert's output.
void AddExperts(const RankContext& rank, const StageLayer& layer,
                const LayerActivations& a, DeviceMatrix x) {
  Backend& device = rank.backend;
  const MoeWeights& weights = layer.weights.moe;
  const LayerSpec& spec = layer.spec;
  const ExpertJoin& join = a.experts[layer.index];
  const DeviceMatrix logits = a.router_logits.Packed(spec.router.num_experts);
  const DeviceRouting routing = {
      a.routing.ids.Packed(spec.router.per_token),
      a.routing.weights.Packed(spec.router.per_token)};
  device.NormRoute(x, {layer.weights.mlp_norm.data(), spec.norm_eps},
                   {*weights.router, weights.router_bias.data(), spec.router,
                    weights.correction.data()},
                   a.normed, logits, routing);
  RemoteExperts* const remote = a.remote_experts.get();
  if (remote != nullptr) {
    remote->Dispatch(join.layer, static_cast<int32_t>(a.normed.rows),
                     rank.step);
  }

  // Remote experts work meanwhile.
  const bool has_shared = weights.shared.gate_up != nullptr;
  DeviceMatrix shared;
  if (has_shared) {
    const RowShards& shards = layer.share.shared_mlp;
    const auto sums = SumsOf(shards, a);
    device.RowParallel(GateMlp(device, layer, a.normed, NormSpec(), a),
                       *weights.shared.down, shards, sums);
    device.ReduceTree(shards.num_leaves, shards.nodes, sums, sums[0]);
    shared = sums[0];
  }
  if (a.own_experts->Add(layer.index, a.normed, routing, spec.activation,
                         {join.nodes, join.own, shared, x})) {
    return;
  }
  a.own_experts->Run(layer.index, a.normed, routing, spec.activation, join.own);

  if (remote != nullptr) {
    for (RowFailure& row : remote->Combine()) {
      rank.failed.push_back(std::move(row));
    }
  }
  // The first node's rows take the sum; a rank alone has it there already.
  const DeviceMatrix mixed = join.sums.empty() ? a.mixed : join.sums[0];
  device.ReduceTree(layer.share.num_experts, join.nodes, join.sums, mixed);
  if (has_shared) {
    device.Add(shared, /*bias=*/nullptr, NormSpec(), mixed);
  }
  device.Add(mixed, /*bias=*/nullptr, NormSpec(), x);
}

}  // namespace

void RunDecoderLayer(const RankContext& rank, const StageLayer& layer,
                     const LayerActivations& a, DeviceMatrix x) {
  Backend& device = rank.backend;
  const AttentionSpec& attention = layer.spec.attention;
  const LayerWeights& weights = layer.weights;
  const DeviceMatrix qkv = a.qkv.Packed(weights.qkv->rows);
  const DeviceMatrix heads = a.attention.Packed(weights.o->cols);
  const auto norm = [&layer](const DeviceVector& weight) {
    return NormSpec{weight.data(), layer.spec.norm_eps};
  };

  // x += W_o attention(rope(W_q n), rope(W_k n), W_v n), n = norm(x)
  device.Linear(x, norm(weights.attention_norm), *weights.qkv,
                weights.qkv_bias.data(), qkv);
  device.RopeAttention(attention, {norm(weights.q_norm), norm(weights.k_norm)},
                       qkv, weights.sinks.data(), layer.kv, heads);
  const RowShards& o_shards = layer.share.attention;
  device.AddRowParallel(
      heads, *weights.o, o_shards, SumsOf(o_shards, a),
      {weights.o_bias.data(), norm(weights.post_attention_norm), x});

  // x += experts(n), n = norm(x)
  if (weights.is_sparse()) return AddExperts(rank, layer, a, x);
  // x += W_down (act(W_gate n) * W_up n), n = norm(x)
  const DeviceMatrix mlp = GateMlp(device, layer, x, norm(weights.mlp_norm), a);
  const RowShards& shards = layer.share.mlp;
  device.AddRowParallel(mlp, *weights.mlp.down, shards, SumsOf(shards, a),
                        {nullptr, norm(weights.post_mlp_norm), x});
}

}  // namespace sluice
