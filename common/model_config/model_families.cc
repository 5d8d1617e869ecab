#include "common/model_config/model_families.h"

#include <algorithm>
#include <string_view>

#include "common/core/kv_groups.h"

namespace sluice {
namespace {

using Score = kernels::RouterRule::Score;

constexpr int64_t kMaxExperts = 4096;
// Over all layers: a checkpoint may have three tensors per expert.
constexpr int64_t kMaxAllExperts = 1 << 17;
constexpr int64_t kMaxExpertSize = 1 << 20;
constexpr int64_t kMaxSparseStep = 1 << 20;

// Checks that a quantised checkpoint is of a method whose tensors
// common/weights/composed_tensor.h reads.
Status CheckQuantisation(const ConfigReader& reader) {
  constexpr std::string_view kMethods[] = {
      "awq", "compressed-tensors", "fp8", "gptq", "mxfp4", "sluice"};
  const Json* found = reader.Find("quantization_config");
  if (found == nullptr) return OkStatus();
  const Json method =
      found->is_object() ? found->value("quant_method", Json()) : Json();
  std::string known;
  for (const std::string_view name : kMethods) {
    if (method == Json(name)) return OkStatus();
    known += Cat(known.empty() ? "" : ", ", name);
  }
  return InvalidArgument("quantization_config: quant_method is ",
                         DumpJson(method).substr(0, 100), ", known are ",
                         known);
}

// Reads attention_bias: biases of q, k and v, and for most families of o.
Status ReadBias(const ConfigReader& reader, bool on_o, bool absent,
                ModelConfig& parsed) {
  bool bias = false;
  SLUICE_RETURN_IF_ERROR(reader.Bool("attention_bias", absent, bias));
  for (LayerConfig& layer : parsed.layers) {
    layer.attention.qkv_bias = bias;
    layer.attention.o_bias = on_o && bias;
  }
  return OkStatus();
}

// Reads the sizes that every mixture has; `experts` is the key of their number.
Status ReadExperts(const ConfigReader& reader, const char* experts,
                   const char* intermediate, int32_t num_layers,
                   MoeConfig& moe) {
  SLUICE_RETURN_IF_ERROR(reader.Int(experts, kMaxExperts, {}, moe.num_experts));
  if (int64_t{num_layers} * moe.num_experts > kMaxAllExperts) {
    return InvalidArgument(experts, " ", moe.num_experts, " in ", num_layers,
                           " layers: limit is ", kMaxAllExperts, " in all");
  }
  const int64_t most = std::min(moe.num_experts, kernels::kMaxExpertsPerToken);
  SLUICE_RETURN_IF_ERROR(
      reader.Int("num_experts_per_tok", most, {}, moe.experts_per_token));
  return reader.Int(intermediate, kMaxExpertSize, {}, moe.intermediate_size);
}

Status ReadLlama(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(CheckQuantisation(reader));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("mlp_bias", false));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("partial_rotary_factor", 1.0));
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

Status ReadQwen3(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(CheckQuantisation(reader));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("use_sliding_window", false));
  for (LayerConfig& layer : parsed.layers) layer.attention.qk_norm = true;
  return ReadBias(reader, /*on_o=*/true, /*absent=*/false, parsed);
}

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

Status ReadQwen3Moe(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(ReadQwen3(reader, parsed));
  if (const Json* experts = reader.Find("num_experts");
      experts != nullptr && *experts == 0) {
    return OkStatus();  // every layer is dense
  }
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(reader, "num_experts",
                                     "moe_intermediate_size",
                                     parsed.num_layers(), moe));
  moe.score = Score::kSoftmax;
  SLUICE_RETURN_IF_ERROR(reader.Bool("norm_topk_prob", false, moe.normalise));
  return ReadSparseLayers(reader, moe, parsed);
}

Status ReadGlm4(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(CheckQuantisation(reader));
  parsed.ropes[0].interleaved = true;
  parsed.ropes[0].rotary_dim /= 2;
  for (LayerConfig& layer : parsed.layers) layer.norm.after = true;
  return ReadBias(reader, /*on_o=*/false, /*absent=*/false, parsed);
}

Status ReadGroups(const ConfigReader& reader, MoeConfig& moe) {
  SLUICE_RETURN_IF_ERROR(
      reader.Int("n_group", moe.num_experts, 1, moe.num_groups));
  SLUICE_RETURN_IF_ERROR(
      reader.Int("topk_group", moe.num_groups, 1, moe.groups_per_token));
  const int32_t size = moe.num_experts / moe.num_groups;
  if (moe.num_experts % moe.num_groups == 0 &&
      (size >= 2 || moe.num_groups == 1)) {
    return OkStatus();
  }
  return InvalidArgument("n_group ", moe.num_groups, " does not cut ",
                         moe.num_experts,
                         " experts into groups of equal size, two at least");
}

Status ReadGlm4Moe(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(CheckQuantisation(reader));
  parsed.ropes[0].rotary_dim /= 2;
  SLUICE_RETURN_IF_ERROR(
      ReadBias(reader, /*on_o=*/false, /*absent=*/false, parsed));
  bool qk_norm = false;
  SLUICE_RETURN_IF_ERROR(reader.Bool("use_qk_norm", false, qk_norm));
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(reader, "n_routed_experts",
                                     "moe_intermediate_size",
                                     parsed.num_layers(), moe));
  moe.score = Score::kSigmoid;
  SLUICE_RETURN_IF_ERROR(ReadGroups(reader, moe));
  SLUICE_RETURN_IF_ERROR(reader.Bool("norm_topk_prob", true, moe.normalise));
  SLUICE_RETURN_IF_ERROR(
      reader.Positive("routed_scaling_factor", 1e6, 1.0, moe.scale));
  int32_t dense = 0;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("first_k_dense_replace", 0, parsed.num_layers(), 1, dense));
  int32_t shared = 0;
  SLUICE_RETURN_IF_ERROR(reader.Int("n_shared_experts", 0,
                                    kMaxExpertSize / moe.intermediate_size, 1,
                                    shared));
  moe.shared_intermediate_size = shared * moe.intermediate_size;
  for (int32_t i = 0; i < parsed.num_layers(); ++i) {
    LayerConfig& layer = parsed.layers[static_cast<size_t>(i)];
    layer.attention.qk_norm = qk_norm;
    if (i >= dense) layer.moe = moe;
  }
  // Files without the key may have the one layer or not.
  return reader.Int("num_nextn_predict_layers", 0, 64, 1,
                    parsed.num_nextn_predict_layers);
}

Status ReadGptOss(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(CheckQuantisation(reader));
  SLUICE_RETURN_IF_ERROR(
      ReadBias(reader, /*on_o=*/true, /*absent=*/true, parsed));
  MoeConfig moe;
  SLUICE_RETURN_IF_ERROR(ReadExperts(reader, "num_local_experts",
                                     "intermediate_size", parsed.num_layers(),
                                     moe));
  moe.interleaved = true;
  moe.score = Score::kSoftmaxOfSelected;
  double limit = 0;
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
  return OkStatus();
}

// The prefix of OpenModel's model_type for a GGUF architecture without a
// family.
constexpr std::string_view kGgufPrefix = "gguf ";

constexpr Family kFamilies[] = {
    {"llama", ReadLlama, &kLlamaTensors},
    {"qwen3", ReadQwen3, &kLlamaTensors},
    {"qwen3_moe", ReadQwen3Moe, &kQwen3MoeTensors},
    {"glm4", ReadGlm4, &kGlm4Tensors},
    {"glm4_moe", ReadGlm4Moe, &kGlm4MoeTensors},
    {"gpt_oss", ReadGptOss, &kGptOssTensors},
};

Status ReadLayerTypes(const Json& types, const ConfigReader& reader,
                      ModelConfig& parsed) {
  const size_t layers = parsed.layers.size();
  if (!types.is_array() || types.size() < layers) {
    return InvalidArgument("layer_types is no list of at least ", layers,
                           " layers' types");
  }
  for (size_t i = 0; i < layers; ++i) {
    const Json& type = types[i];
    int32_t& window = parsed.layers[i].attention.window;
    if (type == "sliding_attention") {
      SLUICE_RETURN_IF_ERROR(
          reader.Int("sliding_window", kMaxKvWindow, {}, window));
    } else if (type != "full_attention") {
      return InvalidArgument("layer_types has ", DumpJson(type), " for layer ",
                             i,
                             "; supported are full_attention and "
                             "sliding_attention");
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<const Family*> FindFamily(const ConfigReader& reader) {
  const Json* found = reader.Find("model_type");
  if (found == nullptr || !found->is_string()) {
    return InvalidArgument("model_type is missing or no string");
  }
  const auto model_type = found->get<std::string>();
  std::string supported;
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
    supported += Cat(supported.empty() ? "" : ", ", family.model_type);
  }
  if (model_type.starts_with(kGgufPrefix)) {
    return InvalidArgument(
        "GGUF architecture '", model_type.substr(kGgufPrefix.size()),
        "' is not supported; of GGUF files llama, qwen3, qwen3moe, glm4, "
        "glm4moe and gpt-oss are, of safetensors folders ",
        supported);
  }
  return InvalidArgument("model_type '", model_type,
                         "' is not supported; supported are ", supported);
}

Status ReadWindows(const ConfigReader& reader, ModelConfig& parsed) {
  if (const Json* types = reader.Find("layer_types"); types != nullptr) {
    SLUICE_RETURN_IF_ERROR(ReadLayerTypes(*types, reader, parsed));
  }
  // A window beyond the last position is none: its blocks would never be freed.
  for (LayerConfig& layer : parsed.layers) {
    int32_t& window = layer.attention.window;
    if (window >= parsed.max_position_embeddings) window = 0;
  }
  return OkStatus();
}

}  // namespace sluice
