#include "common/model_config/model_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/model_config/config_reader.h"
#include "common/model_config/model_families.h"
#include "common/model_config/rope_frequencies.h"
#include "common/model_config/stop_ids.h"

namespace sluice {
namespace {

// These limits are far above released models; products of two or three of them
// stay within int64_t.
constexpr int64_t kMaxHidden = 1 << 17;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxIntermediate = 1 << 20;
constexpr int64_t kMaxVocab = 1 << 22;
constexpr int64_t kMaxPositions = 1 << 28;
constexpr double kMaxTheta = 1e15;

// Absent keys have Llama's defaults, since older Llama files lack keys. Files
// of another family must have the keys.
Status RequireKeys(const ConfigReader& reader, std::string_view model_type) {
  if (model_type == "llama") return OkStatus();
  const Json* parameters = reader.Find("rope_parameters");
  const auto require = [&](const char* key, const char* nested) {
    if (reader.Find(key) != nullptr) return OkStatus();
    if (nested != nullptr && parameters != nullptr && parameters->is_object() &&
        parameters->contains(nested)) {
      return OkStatus();
    }
    return InvalidArgument("key ", key, " is missing, and a ", model_type,
                           " model has no default for it");
  };
  SLUICE_RETURN_IF_ERROR(require("rms_norm_eps", nullptr));
  SLUICE_RETURN_IF_ERROR(require("rope_theta", "rope_theta"));
  if (model_type != "gpt_oss") return OkStatus();
  SLUICE_RETURN_IF_ERROR(require("rope_scaling", "rope_type"));
  return require("max_position_embeddings", nullptr);
}

// Sets every layer to what all layers share; a family may change layers.
Status ReadAttention(const ConfigReader& reader, int32_t hidden_size,
                     AttentionConfig& attention) {
  SLUICE_RETURN_IF_ERROR(
      reader.Int("num_attention_heads", kMaxHeads, {}, attention.num_heads));
  SLUICE_RETURN_IF_ERROR(reader.Int("num_key_value_heads", kMaxHeads,
                                    attention.num_heads,
                                    attention.num_kv_heads));
  if (attention.num_heads % attention.num_kv_heads != 0) {
    return InvalidArgument("num_attention_heads ", attention.num_heads,
                           " is no multiple of num_key_value_heads ",
                           attention.num_kv_heads);
  }
  if (reader.Find("head_dim") == nullptr &&
      hidden_size % attention.num_heads != 0) {
    return InvalidArgument("hidden_size ", hidden_size,
                           " is no multiple of num_attention_heads ",
                           attention.num_heads, ", and there is no head_dim");
  }
  SLUICE_RETURN_IF_ERROR(reader.Int("head_dim", kMaxHeadDim,
                                    hidden_size / attention.num_heads,
                                    attention.head_dim));
  if (attention.head_dim % 2 != 0) {
    return InvalidArgument("head_dim ", attention.head_dim, " is odd");
  }
  // IEEE rounds both roots correctly, so every machine has the same scale.
  attention.scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
  return OkStatus();
}

Status ReadSizes(const ConfigReader& reader, ModelConfig& parsed) {
  LayerConfig layer;
  int32_t num_layers = 0;
  SLUICE_RETURN_IF_ERROR(
      reader.Int("hidden_size", kMaxHidden, {}, parsed.hidden_size));
  SLUICE_RETURN_IF_ERROR(
      reader.Int("num_hidden_layers", kMaxLayers, {}, num_layers));
  SLUICE_RETURN_IF_ERROR(
      ReadAttention(reader, parsed.hidden_size, layer.attention));
  SLUICE_RETURN_IF_ERROR(reader.Int("intermediate_size", kMaxIntermediate, {},
                                    layer.mlp.intermediate_size));
  SLUICE_RETURN_IF_ERROR(
      reader.Int("vocab_size", kMaxVocab, {}, parsed.vocab_size));
  SLUICE_RETURN_IF_ERROR(reader.Int("max_position_embeddings", kMaxPositions,
                                    2048, parsed.max_position_embeddings));
  SLUICE_RETURN_IF_ERROR(
      reader.Positive("rms_norm_eps", 1.0, 1e-6, parsed.rms_norm_eps));
  layer.norm.eps = parsed.rms_norm_eps;
  parsed.layers.assign(static_cast<size_t>(num_layers), layer);
  return OkStatus();
}

// A position's angle is at most so many radians (see kernels/rope.h).
Status CheckFrequencies(const RopeConfig& rope) {
  for (size_t i = 0; i < rope.inv_freq.size(); ++i) {
    const double frequency = rope.inv_freq[i];
    if (frequency > 0.0 && frequency <= 1.0) continue;
    return InvalidArgument("rope_theta ", rope.theta,
                           " with rope_scaling gives pair ", i, " frequency ",
                           frequency, ", limits 0 (excluded) and 1");
  }
  return OkStatus();
}

// Reads the rotated share of a head; `rope.rotary_dim` is the family's default.
Status ReadRotaryDim(const Json& config, const Json* parameters,
                     int32_t head_dim, RopeConfig& rope) {
  constexpr char kKey[] = "partial_rotary_factor";
  const bool nested = parameters != nullptr && parameters->contains(kKey);
  double factor = static_cast<double>(rope.rotary_dim) / head_dim;
  SLUICE_RETURN_IF_ERROR(ConfigReader(nested ? *parameters : config)
                             .Positive(kKey, 1.0, factor, factor));
  rope.rotary_dim = static_cast<int32_t>(head_dim * factor);
  if (rope.rotary_dim >= 2 && rope.rotary_dim % 2 == 0) return OkStatus();
  return InvalidArgument(kKey, " ", factor, " of head_dim ", head_dim,
                         " gives ", rope.rotary_dim,
                         " dimensions, expected an even number above 0");
}

// RoPE's keys are at the top or, in newer files, within rope_parameters.
Status ReadRope(const Json& config, int32_t head_dim, RopeConfig& rope) {
  const ConfigReader reader(config);
  const Json* parameters = reader.Find("rope_parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    return InvalidArgument("rope_parameters is ", parameters->type_name(),
                           ", expected an object");
  }
  const Json* scaling =
      parameters != nullptr ? parameters : reader.Find("rope_scaling");
  const bool nested =
      parameters != nullptr && parameters->contains("rope_theta");
  SLUICE_RETURN_IF_ERROR(
      ConfigReader(nested ? *parameters : config)
          .Positive("rope_theta", kMaxTheta, 10000.0, rope.theta));
  SLUICE_RETURN_IF_ERROR(ReadRotaryDim(config, parameters, head_dim, rope));
  if (scaling != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(rope.scaling,
                            ParseRopeScaling(*scaling, rope.rotary_dim));
  }
  rope.inv_freq = RopeInvFreq(rope.theta, rope.rotary_dim, rope.scaling);
  return CheckFrequencies(rope);
}

}  // namespace

const MoeConfig& ModelConfig::moe() const {
  static const MoeConfig none;
  const auto found =
      std::find_if(layers.begin(), layers.end(),
                   [](const LayerConfig& layer) { return layer.is_sparse(); });
  return found != layers.end() ? found->moe : none;
}

Status CheckSameExperts(const ModelConfig& config) {
  const MoeConfig& first = config.moe();
  for (int32_t i = 0; i < config.num_layers(); ++i) {
    const MoeConfig& moe = config.layers[static_cast<size_t>(i)].moe;
    if (moe.num_experts == 0 ||
        (moe.num_experts == first.num_experts &&
         moe.experts_per_token == first.experts_per_token)) {
      continue;
    }
    return InvalidArgument(
        "layer ", i, " has ", moe.num_experts, " experts, ",
        moe.experts_per_token, " per token, the first sparse layer ",
        first.num_experts, ", ", first.experts_per_token,
        " per token: experts on hosts are the same in all layers");
  }
  return OkStatus();
}

LayerSpan SparseSpan(const ModelConfig& config) {
  LayerSpan span = {0, config.num_layers() - 1};
  while (span.first < span.last && !config.is_sparse(span.first)) ++span.first;
  while (span.last > span.first && !config.is_sparse(span.last)) --span.last;
  return span;
}

std::string SparseLayers(const ModelConfig& config) {
  std::string text;
  for (int32_t first = 0; first < config.num_layers(); ++first) {
    if (!config.is_sparse(first)) continue;
    int32_t last = first;
    while (last + 1 < config.num_layers() && config.is_sparse(last + 1)) ++last;
    text += Cat(text.empty() ? "" : ", ", first);
    if (last > first) text += Cat("-", last);
    first = last;
  }
  return text;
}

StatusOr<ModelConfig> ParseModelConfig(const Json& config) {
  if (!config.is_object()) {
    return InvalidArgument("config is ", config.type_name(),
                           ", expected an object");
  }
  const ConfigReader reader(config);
  ModelConfig parsed;
  SLUICE_ASSIGN_OR_RETURN(const Family* family, FindFamily(reader));
  parsed.model_type = family->model_type;
  parsed.tensors = family->tensors;
  SLUICE_RETURN_IF_ERROR(RequireKeys(reader, parsed.model_type));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("hidden_act", "silu"));
  SLUICE_RETURN_IF_ERROR(ReadSizes(reader, parsed));
  const int32_t head_dim = parsed.layers[0].attention.head_dim;
  parsed.ropes[0].rotary_dim = head_dim;
  SLUICE_RETURN_IF_ERROR(family->read(reader, parsed));
  SLUICE_RETURN_IF_ERROR(ReadWindows(reader, parsed));
  SLUICE_RETURN_IF_ERROR(ReadRope(config, head_dim, parsed.ropes[0]));
  SLUICE_RETURN_IF_ERROR(
      reader.Bool("tie_word_embeddings", false, parsed.tie_word_embeddings));
  if (const Json* bos = reader.Find("bos_token_id")) {
    parsed.bos_token_id = TokenIdOf(*bos, parsed.vocab_size).value_or(-1);
  }
  parsed.eos_token_ids = EosTokenIds(config, parsed.vocab_size);
  return parsed;
}

}  // namespace sluice
