#include <algorithm>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/core/kv_groups.h"
#include "common/model_config/family_readers.h"
#include "common/model_config/model_families.h"

namespace sluice {
namespace {

using Score = kernels::RouterRule::Score;

constexpr int64_t kMaxExperts = 4096;
// Over all layers: a checkpoint may have three tensors per expert.
constexpr int64_t kMaxAllExperts = 1 << 17;
constexpr int64_t kMaxExpertSize = 1 << 20;
constexpr int64_t kMaxSparseStep = 1 << 20;

// Sets the experts of all layers from `dense` on.
void SetExperts(const MoeConfig& moe, int32_t dense, ModelConfig& parsed) {
  for (int32_t i = dense; i < parsed.num_layers(); ++i) {
    parsed.layers[static_cast<size_t>(i)].moe = moe;
  }
}

// ReadSigmoidExperts in all layers but the first dense ones.
Status ReadSigmoidMixture(const ConfigReader& reader, ModelConfig& parsed) {
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadSigmoidExperts(reader, parsed.num_layers(), moe));
  return SetExpertsBehindDense(reader, 1, moe, parsed);
}

// Reads a list of equal numbers, one per layer, or a number.
Status ReadOfLayers(const ConfigReader& reader, const char* key, int64_t max,
                    int32_t& out) {
  const Json* found = reader.Find(key);
  if (found == nullptr || !found->is_array()) {
    return reader.Int(key, max, out, out);
  }
  for (const Json& number : *found) {
    if (number != found->front()) {
      return InvalidArgument(key, " ", DumpJson(*found).substr(0, 200),
                             " differs from layer to layer, which is not "
                             "supported");
    }
  }
  if (found->empty()) return InvalidArgument(key, " is an empty list");
  return ConfigReader(Json{{key, found->front()}}).Int(key, max, {}, out);
}

}  // namespace

// Every decoder_sparse_step-th layer has experts, from layer
// decoder_sparse_step - 1 on; layers of mlp_only_layers have none.
Status ReadSparseLayers(const ConfigReader& reader, const MoeConfig& moe,
                        ModelConfig& parsed) {
  int32_t step = 1;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("decoder_sparse_step", kMaxSparseStep, 1, step));
  for (int32_t i = step - 1; i < parsed.num_layers(); i += step) {
    parsed.layers[static_cast<size_t>(i)].moe = moe;
  }
  const Json* dense = reader.Find("mlp_only_layers");
  if (dense == nullptr) return OkStatus();
  if (!dense->is_array()) {
    return InvalidArgument("mlp_only_layers is ", dense->type_name(),
                           ", expected a list of layers");
  }
  for (const Json& layer : *dense) {
    if (!layer.is_number_integer() || layer < 0) {
      return InvalidArgument("mlp_only_layers has ", DumpJson(layer),
                             ", expected numbers of layers");
    }
    // Numbers beyond the last layer are ignored, as in transformers.
    if (layer < parsed.num_layers()) {
      parsed.layers[layer.get<size_t>()].moe = MoeConfig();
    }
  }
  return OkStatus();
}

Status ReadGroups(const ConfigReader& reader, MoeConfig& moe) {
  SLUICE_RETURN_IF_ERROR(
      reader.Int("n_group", moe.num_experts, 1, moe.num_groups));
  SLUICE_RETURN_IF_ERROR(
      reader.Int("topk_group", moe.num_groups, 1, moe.groups_per_token));
  const int32_t size = moe.num_experts / moe.num_groups;
  if (moe.num_experts % moe.num_groups != 0 ||
      (size < 2 && moe.num_groups > 1)) {
    return InvalidArgument("n_group ", moe.num_groups, " does not cut ",
                           moe.num_experts,
                           " experts into groups of equal size, two at least");
  }
  const int32_t most = moe.groups_per_token * size;
  if (moe.experts_per_token <= most) return OkStatus();
  return InvalidArgument("num_experts_per_tok ", moe.experts_per_token,
                         ": topk_group ", moe.groups_per_token, " has ", most,
                         " experts");
}

Status ReadExperts(const ConfigReader& reader, const ExpertKeys& keys,
                   int32_t num_layers, MoeConfig& moe) {
  SLUICE_RETURN_IF_ERROR(
      reader.Int(keys.experts, kMaxExperts, {}, moe.num_experts));
  if (int64_t{num_layers} * moe.num_experts > kMaxAllExperts) {
    return InvalidArgument(keys.experts, " ", moe.num_experts, " in ",
                           num_layers, " layers: limit is ", kMaxAllExperts,
                           " in all");
  }
  const int64_t most = std::min(moe.num_experts, kernels::kMaxExpertsPerToken);
  SLUICE_RETURN_IF_ERROR(
      reader.Int(keys.per_token, most, {}, moe.experts_per_token));
  return reader.Int(keys.intermediate, kMaxExpertSize, {},
                    moe.intermediate_size);
}

Status ReadSharedMixture(const ConfigReader& reader, int32_t num_layers,
                         MoeConfig& moe) {
  SLUICE_RETURN_IF_ERROR(ReadExperts(
      reader, {"n_routed_experts", "moe_intermediate_size"}, num_layers, moe));
  SLUICE_RETURN_IF_ERROR(ReadGroups(reader, moe));
  SLUICE_RETURN_IF_ERROR(
      reader.Positive("routed_scaling_factor", 1e6, 1.0, moe.scale));
  int32_t shared = 0;
  SLUICE_RETURN_IF_ERROR(reader.Int("n_shared_experts", 0,
                                    kMaxExpertSize / moe.intermediate_size, 1,
                                    shared));
  moe.shared_intermediate_size = shared * moe.intermediate_size;
  return OkStatus();
}

Status ReadSigmoidExperts(const ConfigReader& reader, int32_t num_layers,
                          MoeConfig& moe) {
  SLUICE_RETURN_IF_ERROR(ReadSharedMixture(reader, num_layers, moe));
  moe.score = Score::kSigmoid;
  moe.correction = true;
  return reader.Bool("norm_topk_prob", true, moe.normalise);
}

Status SetExpertsBehindDense(const ConfigReader& reader, int64_t absent,
                             const MoeConfig& moe, ModelConfig& parsed) {
  int32_t dense = 0;
  SLUICE_RETURN_IF_ERROR(reader.Int("first_k_dense_replace", 0,
                                    parsed.num_layers(), absent, dense));
  SetExperts(moe, dense, parsed);
  return OkStatus();
}

void NormaliseExperts(ModelConfig& parsed) {
  for (LayerConfig& layer : parsed.layers) {
    if (layer.is_sparse()) layer.moe.normalise = true;
  }
}

Status ReadMixtral(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadMistral(reader, parsed));
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(reader,
                                     {"num_local_experts", "intermediate_size"},
                                     parsed.num_layers(), moe));
  moe.normalise = true;
  SetExperts(moe, 0, parsed);
  return OkStatus();
}

Status ReadQwen2Moe(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_ASSIGN_OR_RETURN(const bool windows, HasWindows(reader));
  if (windows) {
    int32_t end = 0;
    SLUICE_RETURN_IF_ERROR(
        reader.Int("max_window_layers", 0, kMaxSparseStep, 28, end));
    SLUICE_RETURN_IF_ERROR(
        ReadPattern(
            reader, [&](int32_t i) { return i % 2 == 0 && i < end; }, parsed)
            .status());
  }
  bool bias = true;
  SLUICE_RETURN_IF_ERROR(reader.Bool("qkv_bias", true, bias));
  for (LayerConfig& layer : parsed.layers) layer.attention.qkv_bias = bias;
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(reader,
                                     {"num_experts", "moe_intermediate_size"},
                                     parsed.num_layers(), moe));
  SLUICE_RETURN_IF_ERROR(reader.Bool("norm_topk_prob", false, moe.normalise));
  SLUICE_RETURN_IF_ERROR(reader.Int("shared_expert_intermediate_size",
                                    kMaxExpertSize, 5632,
                                    moe.shared_intermediate_size));
  moe.shared_gate = true;
  return ReadSparseLayers(reader, moe, parsed);
}

Status ReadQwen3Moe(const ConfigReader& reader, ModelConfig& parsed) {
  // All layers have a window, whatever layer_types says.
  SLUICE_ASSIGN_OR_RETURN(const bool windows, HasWindows(reader));
  if (windows) SLUICE_RETURN_IF_ERROR(ReadMistral(reader, parsed));
  SLUICE_RETURN_IF_ERROR(ReadQwen3Attention(reader, parsed));
  if (const Json* experts = reader.Find("num_experts");
      experts != nullptr && *experts == 0) {
    return OkStatus();  // every layer is dense
  }
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(reader,
                                     {"num_experts", "moe_intermediate_size"},
                                     parsed.num_layers(), moe));
  moe.score = Score::kSoftmax;
  SLUICE_RETURN_IF_ERROR(reader.Bool("norm_topk_prob", false, moe.normalise));
  return ReadSparseLayers(reader, moe, parsed);
}

// Weights are normalised, whatever norm_topk_prob says.
Status ReadQwen3VlMoe(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadQwen3Moe(reader, parsed));
  NormaliseExperts(parsed);
  return OkStatus();
}

Status ReadOlmoe(const ConfigReader& reader, ModelConfig& parsed) {
  SetQkNorm(QkNorm::kAllHeads, parsed);
  if (reader.Find("clip_qkv") != nullptr) {
    double clip = 0.0;
    SLUICE_RETURN_IF_ERROR(reader.Positive("clip_qkv", 1e6, 1.0, clip));
    for (LayerConfig& layer : parsed.layers) layer.attention.clip_qkv = clip;
  }
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(
      reader, {"num_experts", "intermediate_size"}, parsed.num_layers(), moe));
  SLUICE_RETURN_IF_ERROR(reader.Bool("norm_topk_prob", false, moe.normalise));
  SetExperts(moe, 0, parsed);
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

Status ReadGraniteMoe(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadGranite(reader, parsed));
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(reader,
                                     {"num_local_experts", "intermediate_size"},
                                     parsed.num_layers(), moe));
  moe.score = Score::kSoftmaxOfSelected;
  SetExperts(moe, 0, parsed);
  return OkStatus();
}

// Layers with experts lie between two indices, every moe_layer_interval-th.
Status ReadErnieMoe(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadErnie(reader, parsed));
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(reader,
                                     {"num_experts", "moe_intermediate_size"},
                                     parsed.num_layers(), moe));
  moe.correction = true;
  moe.normalise = true;
  SLUICE_RETURN_IF_ERROR(reader.MustBe("moe_gate", "topk"));
  int32_t shared = 0;
  SLUICE_RETURN_IF_ERROR(reader.Int("moe_num_shared_experts", 0,
                                    kMaxExpertSize / moe.intermediate_size, 0,
                                    shared));
  moe.shared_intermediate_size = shared * moe.intermediate_size;
  int32_t first = 1;
  int32_t last = -1;
  int32_t interval = 1;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("moe_layer_start_index", 0, kMaxSparseStep, 1, first));
  SLUICE_RETURN_IF_ERROR(
      reader.Int("moe_layer_end_index", -1, kMaxSparseStep, -1, last));
  SLUICE_RETURN_IF_ERROR(
      reader.Int("moe_layer_interval", kMaxSparseStep, 1, interval));
  if (last < 0) last = parsed.num_layers() - 1;
  for (int32_t i = first; i <= last && i < parsed.num_layers(); ++i) {
    if ((i + 1) % interval == 0)
      parsed.layers[static_cast<size_t>(i)].moe = moe;
  }
  return OkStatus();
}

Status ReadHunyuanMoe(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadHunyuan(reader, parsed));
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("num_experts", kMaxExperts, 1, moe.num_experts));
  if (int64_t{moe.num_experts} * parsed.num_layers() > kMaxAllExperts) {
    return InvalidArgument("num_experts ", moe.num_experts, " in ",
                           parsed.num_layers(), " layers: limit is ",
                           kMaxAllExperts, " in all");
  }
  moe.experts_per_token = 1;
  int32_t shared = 1;
  SLUICE_RETURN_IF_ERROR(ReadOfLayers(reader, "num_shared_expert", 1, shared));
  int32_t size = parsed.layers[0].mlp.intermediate_size;
  SLUICE_RETURN_IF_ERROR(
      ReadOfLayers(reader, "moe_intermediate_size", size, size));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("norm_topk_prob", true));
  SLUICE_RETURN_IF_ERROR(
      ReadOfLayers(reader, "moe_topk",
                   std::min(moe.num_experts, kernels::kMaxExpertsPerToken),
                   moe.experts_per_token));
  moe.intermediate_size = parsed.layers[0].mlp.intermediate_size;
  moe.shared_intermediate_size = moe.intermediate_size;
  moe.normalise = true;
  SetExperts(moe, 0, parsed);
  return OkStatus();
}

Status ReadMinimaxM2(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(reader.MustBe("scoring_func", "sigmoid"));
  bool norms = true;
  SLUICE_RETURN_IF_ERROR(reader.Bool("use_qk_norm", true, norms));
  if (norms) SetQkNorm(QkNorm::kAllHeads, parsed);
  const int32_t head_dim = parsed.layers[0].attention.head_dim;
  SLUICE_RETURN_IF_ERROR(reader.Int("rotary_dim", 2, head_dim, head_dim,
                                    parsed.ropes[0].rotary_dim));
  if (parsed.ropes[0].rotary_dim % 2 != 0) {
    return InvalidArgument("rotary_dim ", parsed.ropes[0].rotary_dim,
                           " is odd");
  }
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(reader,
                                     {"num_local_experts", "intermediate_size"},
                                     parsed.num_layers(), moe));
  moe.score = Score::kSigmoid;
  moe.normalise = true;
  SLUICE_RETURN_IF_ERROR(reader.Bool("use_routing_bias", true, moe.correction));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("shared_intermediate_size", 0));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("qk_norm_type", "per_layer"));
  if (const Json* types = reader.Find("attn_type_list")) {
    const bool plain =
        types->is_array() && std::all_of(types->begin(), types->end(),
                                         [](const Json& t) { return t == 1; });
    if (!plain) {
      return InvalidArgument("attn_type_list ", DumpJson(*types).substr(0, 200),
                             " is not supported, only a list of 1");
    }
  }
  SetExperts(moe, 0, parsed);
  return OkStatus();
}

Status ReadDots1(const ConfigReader& reader, ModelConfig& parsed) {
  SetQkNorm(QkNorm::kHeads, parsed);
  SLUICE_RETURN_IF_ERROR(
      ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed));
  if (reader.Find("sliding_window") != nullptr) {
    int32_t from = 0;
    SLUICE_RETURN_IF_ERROR(
        reader.Int("max_window_layers", 0, kMaxSparseStep, 62, from));
    SLUICE_RETURN_IF_ERROR(
        ReadPattern(
            reader, [&](int32_t i) { return i >= from; }, parsed)
            .status());
  }
  return ReadSigmoidMixture(reader, parsed);
}

Status ReadGlm4Moe(const ConfigReader& reader, ModelConfig& parsed) {
  parsed.ropes[0].rotary_dim /= 2;
  SLUICE_RETURN_IF_ERROR(
      ReadBias(reader, /*on_o=*/false, /*absent=*/false, parsed));
  bool qk_norm = false;
  SLUICE_RETURN_IF_ERROR(reader.Bool("use_qk_norm", false, qk_norm));
  if (qk_norm) SetQkNorm(QkNorm::kHeads, parsed);
  SLUICE_RETURN_IF_ERROR(ReadSigmoidMixture(reader, parsed));
  // Files without the key may have the one layer or not.
  return reader.Int("num_nextn_predict_layers", 0, 64, 1,
                    parsed.num_nextn_predict_layers);
}

Status ReadGlm4vMoe(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadGlm4Moe(reader, parsed));
  return ReadBias(reader, /*on_o=*/false, /*absent=*/true, parsed);
}

Status ReadGptOss(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(
      ReadBias(reader, /*on_o=*/true, /*absent=*/true, parsed));
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(reader,
                                     {"num_local_experts", "intermediate_size"},
                                     parsed.num_layers(), moe));
  moe.interleaved = true;
  moe.score = Score::kSoftmaxOfSelected;
  double limit = 0;
  SLUICE_RETURN_IF_ERROR(reader.MustBe("swiglu_alpha", 1.702));
  SLUICE_RETURN_IF_ERROR(reader.Positive("swiglu_limit", 1e6, 7.0, limit));
  moe.activation = {kernels::Activation::Kind::kClampedSwiGlu,
                    static_cast<float>(limit)};
  // Without layer_types windows alternate; the first layer has one.
  int32_t window = 0;
  if (reader.Find("layer_types") == nullptr) {
    SLUICE_RETURN_IF_ERROR(
        reader.Int("sliding_window", kMaxKvWindow, 128, window));
  }
  for (size_t i = 0; i < parsed.layers.size(); ++i) {
    LayerConfig& layer = parsed.layers[i];
    layer.attention.sinks = true;
    layer.attention.window = i % 2 == 0 ? window : 0;
    layer.moe = moe;
  }
  return ReadLayerTypes(reader, parsed);
}

}  // namespace sluice
