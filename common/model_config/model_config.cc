#include "common/model_config/model_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/model_config/config_reader.h"
#include "common/model_config/model_families.h"
#include "common/model_config/stop_ids.h"
#include "common/weights/text_part.h"

namespace sluice {
namespace {

// These limits are far above released models; products of two or three of them
// stay within int64_t.
constexpr int64_t kMaxHidden = 1 << 17;
constexpr int64_t kMaxIntermediate = 1 << 20;
constexpr int64_t kMaxVocab = 1 << 22;
constexpr int64_t kMaxPositions = 1 << 28;

// Files of some families must have the keys that tell how to compute.
Status RequireKeys(const ConfigReader& reader, const Family& family) {
  const Json* parameters = reader.Find("rope_parameters");
  const auto require = [&](const char* key, const char* nested) {
    if (reader.Find(key) != nullptr) return OkStatus();
    if (nested != nullptr && parameters != nullptr && parameters->is_object() &&
        parameters->contains(nested)) {
      return OkStatus();
    }
    const Json* scaling = reader.Find("rope_scaling");
    if (nested != nullptr && scaling != nullptr && scaling->is_object() &&
        scaling->contains(nested)) {
      return OkStatus();
    }
    return InvalidArgument("key ", key, " is missing, and a ",
                           family.model_type, " model has no default for it");
  };
  SLUICE_RETURN_IF_ERROR(require("rms_norm_eps", nullptr));
  SLUICE_RETURN_IF_ERROR(require("rope_theta", "rope_theta"));
  if (family.model_type != "gpt_oss") return OkStatus();
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
  SLUICE_RETURN_IF_ERROR(reader.Bool("of_gguf", false, layer.of_gguf));
  parsed.layers.assign(static_cast<size_t>(num_layers), layer);
  return OkStatus();
}

// Where no key tells the number of layers, a list of their kinds does.
void CountLayers(Json& config) {
  constexpr const char* kLayers = "num_hidden_layers";
  for (const char* key : {"layers_block_type", "hybrid_override_pattern"}) {
    const auto found = config.find(key);
    if (config.contains(kLayers) || found == config.end()) continue;
    // A new key moves the others.
    const Json list = *found;
    if (list.is_array()) config[kLayers] = list.size();
    if (list.is_string()) {
      config[kLayers] = list.get_ref<const std::string&>().size();
    }
  }
}

// Adds the family's values of keys that the config lacks, and its names of keys
// that have others' meaning. A null is a value.
Status Complete(const Family& family, Json& config) {
  for (const auto& [own, usual, yields] : family.renamed) {
    if (config.contains(own) && !(yields && config.contains(usual))) {
      const Json value = config[std::string(own)];
      config[std::string(usual)] = value;
    }
  }
  CountLayers(config);
  if (family.defaults.empty()) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const Json defaults, ParseJson(family.defaults));
  for (const auto& [key, value] : defaults.items()) {
    if (!config.contains(key)) config[key] = value;
  }
  return OkStatus();
}

// Gelu with tanh has several names, and Gemma's configs have it under either
// key; Gemma's first release means it by "gelu"; swish is silu.
Status ReadActivation(const ConfigReader& reader, const Family& family,
                      kernels::Activation& activation) {
  using Kind = kernels::Activation::Kind;
  constexpr std::string_view kGeluTanh = "gelu_pytorch_tanh";
  const char* key = "hidden_activation";
  const Json* found =
      family.activation == kGeluTanh ? reader.Find(key) : nullptr;
  if (found == nullptr) found = reader.Find(key = "hidden_act");
  const std::string name = found == nullptr     ? std::string(family.activation)
                           : found->is_string() ? found->get<std::string>()
                                                : DumpJson(*found);
  constexpr std::string_view kFirstGemma = "gelu";
  const bool is_gelu = name == "gelu_pytorch_tanh" || name == "gelu_tanh" ||
                       (family.activation == kFirstGemma && name == "gelu");
  if (name == "xielu") activation.kind = Kind::kXIelu;
  if (name == "relu2") activation.kind = Kind::kRelu2;
  const bool is_swish = name == "swish" && family.activation == "silu";
  if (is_gelu &&
      (family.activation == kGeluTanh || family.activation == kFirstGemma)) {
    activation.kind = Kind::kGeluTanh;
  } else if (name != family.activation && !is_swish) {
    return InvalidArgument(key, " \"", name, "\" is not supported, only \"",
                           family.activation, "\"");
  }
  return OkStatus();
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
  ReadKeys read;
  return ParseAndRecord(config, read);
}

StatusOr<ModelConfig> ParseAndRecord(const Json& config, ReadKeys& read) {
  if (!config.is_object()) {
    return InvalidArgument("config is ", config.type_name(),
                           ", expected an object");
  }
  Json text = weights::TextPartOf(config);
  ModelConfig parsed;
  SLUICE_ASSIGN_OR_RETURN(const Family* family, FindFamily(ConfigReader(text)));
  read.emplace("model_type");
  parsed.model_type = family->model_type;
  parsed.tensors = family->tensors;
  if (family->needs_keys) {
    SLUICE_RETURN_IF_ERROR(RequireKeys(ConfigReader(text), *family));
  }
  SLUICE_RETURN_IF_ERROR(Complete(*family, text));
  for (const RenamedKey& key : family->renamed) read.emplace(key.own);
  const ConfigReader reader(text, &read);
  for (const char* key : {"is_encoder_decoder", "add_cross_attention"}) {
    SLUICE_RETURN_IF_ERROR(reader.MustBe(key, false));
  }
  SLUICE_RETURN_IF_ERROR(CheckQuantisation(reader));
  SLUICE_RETURN_IF_ERROR(ReadSizes(reader, parsed));
  for (LayerConfig& layer : parsed.layers) {
    SLUICE_RETURN_IF_ERROR(
        ReadActivation(reader, *family, layer.mlp.activation));
  }
  const int32_t head_dim = parsed.layers[0].attention.head_dim;
  parsed.ropes[0].rotary_dim = head_dim;
  SLUICE_RETURN_IF_ERROR(
      reader.Bool("tie_word_embeddings", false, parsed.tie_word_embeddings));
  SLUICE_RETURN_IF_ERROR(family->read(reader, parsed));
  // A window beyond the last position is no window: its blocks would never be
  // freed.
  for (LayerConfig& layer : parsed.layers) {
    int32_t& window = layer.attention.window;
    if (window >= parsed.max_position_embeddings) window = 0;
  }
  for (RopeConfig& rope : parsed.ropes) {
    if (!rope.inv_freq.empty()) continue;  // the family's
    SLUICE_RETURN_IF_ERROR(ReadRope(reader, "full_attention", head_dim, rope));
  }
  if (const Json* bos = reader.Find("bos_token_id")) {
    parsed.bos_token_id = TokenIdOf(*bos, parsed.vocab_size).value_or(-1);
  }
  parsed.eos_token_ids = EosTokenIds(text, parsed.vocab_size);
  return parsed;
}

}  // namespace sluice
