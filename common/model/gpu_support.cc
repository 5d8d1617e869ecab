#include "common/model/gpu_support.h"

#include <string_view>

namespace sluice {
namespace {

using Kind = kernels::Activation::Kind;

bool IsBuilt(const kernels::Activation& activation) {
  return activation.gated && (activation.kind == Kind::kSilu ||
                              activation.kind == Kind::kClampedSwiGlu);
}

struct Mechanism {
  std::string_view name;
  bool (*is_in)(const LayerConfig& layer);
};

constexpr Mechanism kMissing[] = {
    {"layers with a state (a short convolution, the gated delta rule or Mamba "
     "2)",
     [](const LayerConfig& l) { return l.state.present(); }},
    {"a gate of attention",
     [](const LayerConfig& l) { return l.attention.gate; }},
    {"latent attention",
     [](const LayerConfig& l) { return l.attention.is_latent(); }},
    {"LayerNorm", [](const LayerConfig& l) { return l.norm.layer_norm; }},
    {"norms of q and k over all heads",
     [](const LayerConfig& l) {
       return l.attention.qk_norm == QkNorm::kAllHeads;
     }},
    {"norms of q and k behind RoPE",
     [](const LayerConfig& l) {
       return l.attention.qk_norm == QkNorm::kHeadsAfterRope;
     }},
    {"a soft cap of attention's scores",
     [](const LayerConfig& l) { return l.attention.soft_cap != 0; }},
    {"queries that grow with the position",
     [](const LayerConfig& l) { return l.attention.growth.beta != 0; }},
    {"a clip of q, k and v",
     [](const LayerConfig& l) { return l.attention.clip_qkv != 0; }},
    {"norms of values",
     [](const LayerConfig& l) { return l.attention.v_norm; }},
    {"keys and values of another layer",
     [](const LayerConfig& l) { return l.attention.kv_layer >= 0; }},
    {"an MLP beside experts",
     [](const LayerConfig& l) { return l.moe.own_norms; }},
    {"inputs of its own of every layer",
     [](const LayerConfig& l) { return l.own_input; }},
    {"a multiplier behind a layer",
     [](const LayerConfig& l) { return l.output_scale; }},
    {"a multiplier of the residual",
     [](const LayerConfig& l) { return l.residual_scale != 1; }},
    {"biases of the MLP", [](const LayerConfig& l) { return l.mlp.bias; }},
    {"a gate of the shared expert",
     [](const LayerConfig& l) { return l.moe.shared_gate; }},
    {"the MLP's activation",
     [](const LayerConfig& l) {
       return !l.is_sparse() && !IsBuilt(l.mlp.activation);
     }},
};

Status Missing(const ModelConfig& config, std::string_view what) {
  return Unimplemented("model_type '", config.model_type, "' has ", what,
                       ", which is not built for GPUs yet; CPUs compute it "
                       "(--device cpu)");
}

}  // namespace

Status CheckGpuHasExperts(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers) {
    if (layer.is_sparse() && !IsBuilt(layer.moe.activation)) {
      return Missing(config, "the experts' activation");
    }
  }
  return OkStatus();
}

Status CheckGpuHas(const ModelConfig& config) {
  SLUICE_RETURN_IF_ERROR(CheckGpuHasExperts(config));
  for (const LayerConfig& layer : config.layers) {
    for (const Mechanism& mechanism : kMissing) {
      if (mechanism.is_in(layer)) return Missing(config, mechanism.name);
    }
  }
  if (config.embedding_scale != 1) {
    return Missing(config, "a multiplier of embeddings");
  }
  if (config.logit_scale != 1 || config.logit_soft_cap != 0) {
    return Missing(config, "a multiplier or a soft cap of logits");
  }
  return OkStatus();
}

}  // namespace sluice
