#include "common/model/decoder_layer.h"

#include <span>
#include <utility>

#include "common/model/latent_attention.h"
#include "common/model/state_layer.h"

namespace sluice {
namespace {

// The partial sums of a product whose columns are cut over the ranks.
std::span<const DeviceMatrix> SumsOf(const RowShards& shards,
                                     const LayerActivations& a) {
  return std::span(a.sums).first(shards.nodes.size());
}

NormSpec NormOf(const StageLayer& layer, const DeviceVector& weight,
                const DeviceVector& bias) {
  return {weight.data(), layer.spec.norm_eps, layer.spec.layer_norm,
          bias.data()};
}
NormSpec NormOf(const StageLayer& layer, const DeviceVector& weight) {
  return {weight.data(), layer.spec.norm_eps, layer.spec.layer_norm};
}

// Norms q and k over all heads, of which every rank has some.
void NormAllHeads(Backend& device, const StageLayer& layer,
                  const LayerActivations& a, DeviceMatrix qkv) {
  const LayerSpec& spec = layer.spec;
  const RowShards& shards = layer.share.attention;
  const auto squares = std::span(a.squares).first(shards.nodes.size());
  device.HeadSquares(spec.norm_heads, qkv, shards.own_nodes, squares);
  device.ReduceTree(shards.num_leaves, shards.nodes, squares, squares[0]);
  device.NormBySquares(
      {squares[0], layer.weights.q_norm.data(), layer.weights.k_norm.data(),
       spec.norm_eps, spec.attention.num_heads * spec.attention.head_dim,
       spec.attention.num_kv_heads * spec.attention.head_dim, spec.norm_q_count,
       spec.norm_k_count},
      qkv);
}

// heads [T, N D] = attention(rope(W_q n), rope(W_k n), W_v n), n = norm(x).
void RunAttention(Backend& device, const StageLayer& layer,
                  const LayerActivations& a, DeviceMatrix x,
                  const NormSpec& before, DeviceMatrix heads) {
  const LayerSpec& spec = layer.spec;
  const LayerWeights& weights = layer.weights;
  const DeviceMatrix qkv = a.qkv.Packed(weights.qkv->rows);
  device.Linear(x, before, *weights.qkv, weights.qkv_bias.data(), qkv);
  HeadNorms of_heads = {NormOf(layer, weights.q_norm),
                        NormOf(layer, weights.k_norm)};
  if (spec.norm_heads.head_dim > 0) {
    NormAllHeads(device, layer, a, qkv);
    of_heads = HeadNorms();
  }
  if (spec.clip_qkv != 0) device.Map({.clip = spec.clip_qkv}, qkv);
  const AttentionSpec& attention = spec.attention;
  const int64_t kv_cols = attention.num_kv_heads * attention.head_dim;
  if (weights.v_norm.data() != nullptr) {
    device.NormEachHead(qkv.Columns(heads.cols + kv_cols, kv_cols),
                        attention.head_dim, NormOf(layer, weights.v_norm));
  }
  device.RopeAttention(attention, of_heads, qkv, weights.sinks.data(), layer.kv,
                       heads);
  if (!spec.gates_heads) return;
  // A gate's rows are behind those of v.
  const int64_t gate = heads.cols + 2 * kv_cols;
  device.SigmoidGate(qkv.Columns(gate, heads.cols), heads);
}

// Returns act(W_gate n) * W_up n, n = norm(x): of the layer's MLP, or of the
// shared expert of a sparse layer.
DeviceMatrix GateMlp(Backend& device, const StageLayer& layer, DeviceMatrix x,
                     const NormSpec& norm, const LayerActivations& a) {
  const MlpWeights& weights =
      layer.weights.is_sparse() ? layer.weights.moe.shared : layer.weights.mlp;
  const DeviceMatrix mlp = a.mlp.Packed(weights.down->cols);
  Activation activation = layer.spec.activation;
  activation.xielu = weights.xielu;
  if (layer.spec.gate_scale != 1) {
    const DeviceMatrix both = a.gate_up.Packed(weights.gate_up->rows);
    device.Linear(x, norm, *weights.gate_up, weights.gate_up_bias.data(), both);
    device.Map({.scale = layer.spec.gate_scale}, both.Columns(0, mlp.cols));
    device.Gate(activation, both, mlp);
    return mlp;
  }
  device.GatedLinear(x, norm, *weights.gate_up, weights.gate_up_bias.data(),
                     activation, a.gate_up.Packed(weights.gate_up->rows), mlp);
  return mlp;
}

// Returns the shared expert's output on every rank, of the rows a.normed or,
// with norms of its own, of x; no data without a shared expert.
DeviceMatrix SharedExpert(Backend& device, const StageLayer& layer,
                          const LayerActivations& a, DeviceMatrix x) {
  const MoeWeights& weights = layer.weights.moe;
  if (weights.shared.gate_up == nullptr) return {};
  const RowShards& shards = layer.share.shared_mlp;
  const auto sums = SumsOf(shards, a);
  const bool own_norms = weights.shared_post_norm.data() != nullptr;
  const DeviceMatrix mlp =
      own_norms
          ? GateMlp(device, layer, x, NormOf(layer, layer.weights.mlp_norm), a)
          : GateMlp(device, layer, a.normed, NormSpec(), a);
  device.RowParallel(mlp, *weights.shared.down, shards, sums);
  device.ReduceTree(shards.num_leaves, shards.nodes, sums, sums[0]);
  if (weights.shared_gate != nullptr) {
    device.Linear(a.normed, NormSpec(), *weights.shared_gate,
                  /*bias=*/nullptr, a.shared_gate);
    device.GateRows(a.shared_gate, sums[0]);
  }
  if (own_norms) {
    device.Norm(sums[0], NormOf(layer, weights.shared_post_norm), sums[0]);
  }
  return sums[0];
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
  const RouterSpec router = {*weights.router, weights.router_bias.data(),
                             spec.router, weights.correction.data()};
  // The router's norm may be another than that of the experts' rows.
  const bool own_norms = weights.router_norm.data() != nullptr;
  device.NormRoute(
      x,
      NormOf(layer, own_norms ? weights.router_norm : layer.weights.mlp_norm),
      router, a.normed, logits, routing);
  if (own_norms) {
    device.ScaleRouting(routing, weights.expert_scale.data(),
                        spec.router.num_experts);
    device.Norm(x, NormOf(layer, weights.expert_norm), a.normed);
  }
  RemoteExperts* const remote = a.remote_experts.get();
  if (remote != nullptr) {
    remote->Dispatch(join.layer, static_cast<int32_t>(a.normed.rows),
                     rank.step);
  }

  // Remote experts work meanwhile.
  const DeviceMatrix shared = SharedExpert(device, layer, a, x);
  const bool is_sum = spec.residual_scale == 1 && !own_norms &&
                      layer.weights.post_mlp_norm.data() == nullptr;
  if (is_sum &&
      a.own_experts->Add(layer.index, a.normed, routing, spec.activation,
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
  if (own_norms) {
    device.Norm(mixed, NormOf(layer, weights.expert_post_norm), mixed);
  }
  if (shared.data != nullptr) {
    device.Add(shared, /*bias=*/nullptr, NormSpec(), mixed);
  }
  if (spec.residual_scale != 1) {
    device.Map({.scale = spec.residual_scale}, mixed);
  }
  device.Add(mixed, /*bias=*/nullptr,
             NormOf(layer, layer.weights.post_mlp_norm), x);
}

// x += W_o attention(rope(W_q n), rope(W_k n), W_v n), n = before(n).
void AddAttention(Backend& device, const StageLayer& layer,
                  const LayerActivations& a, DeviceMatrix n,
                  const NormSpec& before, DeviceMatrix x) {
  const AttentionSpec& attention = layer.spec.attention;
  const LayerWeights& weights = layer.weights;
  const LayerSpec& spec = layer.spec;
  const DeviceMatrix heads = a.attention.Packed(weights.o->cols);
  if (attention.latent.kv_rank > 0) {
    RunLatentAttention(device, layer, a, n, before, heads);
  } else {
    RunAttention(device, layer, a, n, before, heads);
  }
  const RowShards& o_shards = layer.share.attention;
  device.AddRowParallel(
      heads, *weights.o, o_shards, SumsOf(o_shards, a),
      {weights.o_bias.data(), NormOf(layer, weights.post_attention_norm), x,
       spec.attention_scale});
}

// x += attention, state or both, x += MLP or experts.
void RunBlocks(const RankContext& rank, const StageLayer& layer,
               const LayerActivations& a, DeviceMatrix x) {
  Backend& device = rank.backend;
  const LayerWeights& weights = layer.weights;
  const LayerSpec& spec = layer.spec;
  NormSpec before =
      NormOf(layer, weights.attention_norm, weights.attention_norm_bias);
  DeviceMatrix n = x;
  if (spec.parallel || spec.norms_once) {
    device.Norm(x, before, a.normed);
    n = a.normed;
    before = NormSpec();
  }
  if (weights.qkv != nullptr) AddAttention(device, layer, a, n, before, x);
  if (weights.state.in != nullptr) {
    AddStateMixer(device, layer, a, n, before, x);
  }

  // x += experts(n), n = norm(x)
  if (weights.is_sparse()) return AddExperts(rank, layer, a, x);
  if (weights.mlp.down == nullptr) return;
  // x += W_down (act(W_gate n) * W_up n), n = norm(x)
  const DeviceMatrix mlp =
      spec.parallel
          ? GateMlp(device, layer, n, NormSpec(), a)
          : GateMlp(device, layer, x,
                    NormOf(layer, weights.mlp_norm, weights.mlp_norm_bias), a);
  const RowShards& shards = layer.share.mlp;
  device.AddRowParallel(
      mlp, *weights.mlp.down, shards, SumsOf(shards, a),
      {weights.mlp.down_bias.data(), NormOf(layer, weights.post_mlp_norm), x,
       spec.mlp_scale});
}

// x += norm(W_p (gelu(W_g x) * the layer's own input)).
void AddOwnInput(Backend& device, const StageLayer& layer,
                 const LayerActivations& a, DeviceMatrix x) {
  const LayerWeights& weights = layer.weights;
  Activation gelu = layer.spec.activation;
  gelu.gated = false;
  device.Linear(x, NormSpec(), *weights.input_gate, /*bias=*/nullptr,
                a.own_input);
  device.Gate(gelu, a.own_input, a.own_input);
  device.Multiply(layer.own_input, a.own_input);
  device.Linear(a.own_input, NormSpec(), *weights.input_projection,
                /*bias=*/nullptr, a.sums[0]);
  device.Add(a.sums[0], /*bias=*/nullptr, NormOf(layer, weights.input_norm), x);
}

}  // namespace

void RunDecoderLayer(const RankContext& rank, const StageLayer& layer,
                     const LayerActivations& a, DeviceMatrix x) {
  RunBlocks(rank, layer, a, x);
  if (layer.own_input.data != nullptr) AddOwnInput(rank.backend, layer, a, x);
  if (layer.weights.output_scale != 1) {
    rank.backend.Map({.scale = layer.weights.output_scale}, x);
  }
}

}  // namespace sluice
