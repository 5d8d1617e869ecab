#include "common/model_config/gguf_keys.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/model_config/open_model.h"
#include "common/model_config/rope_frequencies.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/model_contents.h"

namespace sluice {
namespace {

using weights::GgufMetadata;
using weights::GgufType;
using enum GgufKey::Type;

const LayerConfig& First(const ModelConfig& config) {
  return config.layers.front();
}

constexpr GgufKey kShared[] = {
    {".embedding_length", "hidden_size", kInt,
     [](const ModelConfig& c) -> Json { return c.hidden_size; }},
    {".block_count", "num_hidden_layers", kInt,
     [](const ModelConfig& c) -> Json {
       return c.num_layers() + c.num_nextn_predict_layers;
     }},
    {".attention.head_count", "num_attention_heads", kInt,
     [](const ModelConfig& c) -> Json { return First(c).attention.num_heads; }},
    {".attention.head_count_kv", "num_key_value_heads", kInt,
     [](const ModelConfig& c) -> Json {
       return First(c).attention.num_kv_heads;
     },
     [](const Json& config) { return config.at("num_attention_heads"); }},
    {".feed_forward_length", "intermediate_size", kInt,
     [](const ModelConfig& c) -> Json {
       return First(c).mlp.intermediate_size;
     }},
    {".context_length", "max_position_embeddings", kInt,
     [](const ModelConfig& c) -> Json { return c.max_position_embeddings; }},
    {".attention.layer_norm_rms_epsilon", "rms_norm_eps", kFloat,
     [](const ModelConfig& c) -> Json { return c.rms_norm_eps; }},
    {".rope.freq_base", "rope_theta", kFloat,
     [](const ModelConfig& c) -> Json { return c.ropes.front().theta; },
     [](const Json&) -> Json { return 10000.0; }},
    // Older files leave the size of a head out.
    {".attention.key_length", "head_dim", kInt,
     [](const ModelConfig& c) -> Json { return First(c).attention.head_dim; },
     [](const Json& config) -> Json {
       const auto heads = config.at("num_attention_heads").get<int64_t>();
       const auto hidden = config.at("hidden_size").get<int64_t>();
       return heads > 0 ? hidden / heads : 0;
     }},
    // The rows of the embedding stand for it.
    {".vocab_size", "vocab_size", kInt,
     [](const ModelConfig& c) -> Json { return c.vocab_size; },
     [](const Json& config) { return config.at("vocab_size"); }},
};

constexpr GgufKey NumExperts(const char* config) {
  return {".expert_count", config, kInt,
          [](const ModelConfig& c) -> Json { return c.moe().num_experts; }};
}
constexpr GgufKey kExpertsUsed = {
    ".expert_used_count", "num_experts_per_tok", kInt,
    [](const ModelConfig& c) -> Json { return c.moe().experts_per_token; }};
constexpr GgufKey kExpertSize = {
    ".expert_feed_forward_length", "moe_intermediate_size", kInt,
    [](const ModelConfig& c) -> Json { return c.moe().intermediate_size; }};

Json One(const Json&) { return 1; }
Json Yes(const Json&) { return true; }

constexpr GgufKey kQwen3Moe[] = {
    NumExperts("num_experts"),
    kExpertsUsed,
    kExpertSize,
    {".expert_weights_norm", "norm_topk_prob", kBool,
     [](const ModelConfig& c) -> Json { return c.moe().normalise; }, Yes}};

constexpr GgufKey kGptOss[] = {
    NumExperts("num_local_experts"),
    kExpertsUsed,
    kExpertSize,
    // The gating normalises.
    {".expert_weights_norm", "norm_topk_prob", kBool,
     [](const ModelConfig&) -> Json { return nullptr; }, Yes},
    // A window beyond the last position is none in a config.
    {".attention.sliding_window", "sliding_window", kInt,
     [](const ModelConfig& c) -> Json {
       int32_t window = 0;
       for (const LayerConfig& layer : c.layers) {
         window = std::max(window, layer.attention.window);
       }
       return window > 0 ? window : c.max_position_embeddings;
     },
     [](const Json&) -> Json { return 128; }}};

constexpr GgufKey kGlm4Moe[] = {
    NumExperts("n_routed_experts"),
    kExpertsUsed,
    kExpertSize,
    {".expert_weights_norm", "norm_topk_prob", kBool,
     [](const ModelConfig& c) -> Json { return c.moe().normalise; }, Yes},
    {".expert_group_count", "n_group", kInt,
     [](const ModelConfig& c) -> Json { return c.moe().num_groups; }, One},
    {".expert_group_used_count", "topk_group", kInt,
     [](const ModelConfig& c) -> Json { return c.moe().groups_per_token; },
     One},
    {".expert_shared_count", "n_shared_experts", kInt,
     [](const ModelConfig& c) -> Json {
       return c.moe().shared_intermediate_size /
              std::max(c.moe().intermediate_size, 1);
     },
     One},
    {".leading_dense_block_count", "first_k_dense_replace", kInt,
     [](const ModelConfig& c) -> Json {
       const auto sparse = std::find_if(
           c.layers.begin(), c.layers.end(),
           [](const LayerConfig& layer) { return layer.is_sparse(); });
       return sparse - c.layers.begin();
     },
     One},
    {".expert_weights_scale", "routed_scaling_factor", kFloat,
     [](const ModelConfig& c) -> Json { return c.moe().scale; },
     [](const Json&) -> Json { return 1.0; }},
    {".nextn_predict_layers", "num_nextn_predict_layers", kInt,
     [](const ModelConfig& c) -> Json { return c.num_nextn_predict_layers; },
     [](const Json&) -> Json { return 0; }}};

constexpr GgufFamily kGgufFamilies[] = {
    {.architecture = "llama",
     .model_type = "llama",
     .hugging_face = "LlamaForCausalLM",
     .permuted = true},
    {.architecture = "qwen3",
     .model_type = "qwen3",
     .hugging_face = "Qwen3ForCausalLM"},
    {.architecture = "qwen3moe",
     .model_type = "qwen3_moe",
     .hugging_face = "Qwen3MoeForCausalLM",
     .keys = kQwen3Moe,
     .gating = GgufGating::kSoftmax},
    {.architecture = "glm4",
     .model_type = "glm4",
     .hugging_face = "Glm4ForCausalLM"},
    {.architecture = "glm4moe",
     .model_type = "glm4_moe",
     .hugging_face = "Glm4MoeForCausalLM",
     .keys = kGlm4Moe,
     .gating = GgufGating::kSigmoid},
    {.architecture = "gpt-oss",
     .model_type = "gpt_oss",
     .hugging_face = "GptOssForCausalLM",
     .keys = kGptOss,
     .gating = GgufGating::kSoftmaxOfSelected},
};

// Fills metadata with keys of one architecture.
class KeyWriter {
 public:
  explicit KeyWriter(std::string_view architecture)
      : architecture_(architecture) {}

  void Text(std::string key, std::string value) {
    metadata_.Insert(std::move(key),
                     {GgufType::kString, GgufType::kUint8, std::move(value)});
  }
  void Int(std::string_view key, int64_t value) {
    metadata_.Insert(Cat(architecture_, key),
                     {GgufType::kUint32, GgufType::kUint8, value});
  }
  void Float(std::string_view key, double value) {
    metadata_.Insert(Cat(architecture_, key),
                     {GgufType::kFloat32, GgufType::kUint8, value});
  }
  void Add(const GgufKey& key, const Json& value) {
    if (value.is_null()) return;
    if (key.type == kInt) return Int(key.gguf, value.get<int64_t>());
    if (key.type == kFloat) return Float(key.gguf, value.get<double>());
    metadata_.Insert(Cat(architecture_, key.gguf),
                     {GgufType::kBool, GgufType::kUint8, value.get<bool>()});
  }
  void RopeScaling(const RopeScaling& scaling) {
    using Kind = RopeScaling::Kind;
    if (scaling.kind != Kind::kLinear && scaling.kind != Kind::kYarn) return;
    const bool is_yarn = scaling.kind == Kind::kYarn;
    Text(Cat(architecture_, ".rope.scaling.type"), is_yarn ? "yarn" : "linear");
    Float(".rope.scaling.factor", scaling.factor);
    if (!is_yarn) return;
    Int(".rope.scaling.original_context_length",
        static_cast<int64_t>(scaling.original_max_position_embeddings));
    Float(".rope.scaling.yarn_beta_fast", scaling.beta_fast);
    Float(".rope.scaling.yarn_beta_slow", scaling.beta_slow);
  }
  GgufMetadata& metadata() { return metadata_; }

 private:
  const std::string architecture_;
  GgufMetadata metadata_;
};

// Returns what differs between two configs but for tokens and a scaling that a
// tensor tells; empty: nothing.
std::string DifferenceOf(const ModelConfig& wanted, const ModelConfig& made) {
  if (RopeDivisorsOf(wanted.ropes.front()).empty() &&
      made.ropes != wanted.ropes) {
    return "rope_scaling";
  }
  if (made.num_layers() != wanted.num_layers()) return "num_hidden_layers";
  for (size_t i = 0; i < made.layers.size(); ++i) {
    const LayerConfig& a = wanted.layers[i];
    const LayerConfig& b = made.layers[i];
    if (a == b) continue;
    const char* part = a.is_sparse() != b.is_sparse() ? "kind (dense or sparse)"
                       : a.attention.window != b.attention.window
                           ? "attention window"
                       : !(a.attention == b.attention) ? "attention's biases"
                       : !(a.moe == b.moe)             ? "experts"
                                                       : "norms or MLP";
    return Cat("layer ", i, "'s ", part);
  }
  return made.vocab_size != wanted.vocab_size ? "vocab_size" : "";
}

// Checks that a reader of the file finds the model again.
Status CheckReadable(const GgufFamily& family, const ModelConfig& config,
                     const GgufMetadata& metadata,
                     const std::vector<weights::TensorInfo>& tensors) {
  weights::ModelContents contents;
  contents.gguf = metadata;
  for (const weights::TensorInfo& tensor : tensors) {
    // Its elements are in no file yet.
    if (tensor.name != kRopeDivisors) contents.tensors.push_back({tensor});
  }
  std::vector<std::string> unread;
  SLUICE_ASSIGN_OR_RETURN(const Json made, ConfigOfGguf(contents, unread));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig parsed, ParseModelConfig(made));
  const std::string difference = DifferenceOf(config, parsed);
  if (difference.empty()) return OkStatus();
  return Unimplemented("config.json: a GGUF of architecture ",
                       family.architecture, " cannot tell ", difference);
}

}  // namespace

std::span<const GgufKey> SharedGgufKeys() { return kShared; }

const GgufFamily* FindGgufFamily(std::string_view architecture) {
  for (const GgufFamily& family : kGgufFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

const GgufFamily* GgufFamilyOf(std::string_view model_type) {
  for (const GgufFamily& family : kGgufFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

StatusOr<GgufMetadata> GgufKeysOf(
    const ModelConfig& config,
    const std::vector<weights::TensorInfo>& tensors) {
  const GgufFamily* family = GgufFamilyOf(config.model_type);
  if (family == nullptr) {
    return Unimplemented("model_type '", config.model_type, "' has no GGUF");
  }
  KeyWriter writer(family->architecture);
  writer.Text("general.architecture", std::string(family->architecture));
  writer.Text("general.type", "model");
  for (const auto keys : {SharedGgufKeys(), family->keys}) {
    for (const GgufKey& key : keys) writer.Add(key, key.value(config));
  }
  const RopeConfig& rope = config.ropes.front();
  writer.Int(".attention.value_length", First(config).attention.head_dim);
  writer.Int(".rope.dimension_count", rope.rotary_dim);
  writer.RopeScaling(rope.scaling);
  // The others' is fixed by their architecture.
  if (family->gating == GgufGating::kSigmoid) {
    writer.Int(".expert_gating_func", static_cast<int64_t>(family->gating));
  }
  // llama.cpp reads no key and normalises.
  if (config.model_type == "qwen3_moe" && config.moe().num_experts > 0 &&
      !config.moe().normalise) {
    return Unimplemented(
        "config.json: norm_topk_prob is false, llama.cpp normalises the "
        "weights of a qwen3moe's experts");
  }
  SLUICE_RETURN_IF_ERROR(
      CheckReadable(*family, config, writer.metadata(), tensors));
  return std::move(writer.metadata());
}

std::vector<float> RopeDivisorsOf(const RopeConfig& rope) {
  using Kind = RopeScaling::Kind;
  if (rope.scaling.kind != Kind::kLlama3 &&
      rope.scaling.kind != Kind::kDivisors) {
    return {};
  }
  const auto plain = RopeInvFreq(rope.theta, rope.rotary_dim, {});
  std::vector<float> divisors;
  for (size_t i = 0; i < plain.size(); ++i) {
    divisors.push_back(static_cast<float>(plain[i] / rope.inv_freq[i]));
  }
  return divisors;
}

std::string GgufNameOf(std::string_view row_name, int32_t layer) {
  return layer < 0 ? std::string(row_name)
                   : Cat(kGgufLayerPrefix, layer, ".", row_name);
}

}  // namespace sluice
