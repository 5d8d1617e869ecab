#include "common/model_config/open_model.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_families.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/file.h"
#include "common/weights/model_contents.h"

namespace sluice {
namespace {

using weights::GgufMetadata;
using weights::LocatedTensor;
using weights::ModelContents;
using weights::Quoted;

constexpr int64_t kMaxRopeDivisors = 4096;

const LocatedTensor* FindTensor(const ModelContents& contents,
                                std::string_view gguf_name) {
  for (const LocatedTensor& tensor : contents.tensors) {
    if (tensor.info.name == gguf_name) return &tensor;
  }
  return nullptr;
}

// Returns the double with the shortest decimal form that rounds to this float:
// 1e-05 as in config.json, which a GGUF stores as F32.
double ShortestDouble(double stored) {
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(),
                                 static_cast<float>(stored));
  double value = stored;
  std::from_chars(text.data(), end.ptr, value);
  return value;
}

// Writes config keys from the metadata and keeps the first error. A key that
// begins with a dot is the architecture's: ".block_count" is
// "llama.block_count".
class ConfigWriter {
 public:
  ConfigWriter(const ModelContents& contents, std::string architecture,
               Json& config)
      : contents_(contents),
        architecture_(std::move(architecture)),
        config_(config) {}

  const ModelContents& contents() const { return contents_; }
  const GgufMetadata& metadata() const { return *contents_.gguf; }
  Json& operator[](const char* name) { return config_[name]; }
  std::string Key(std::string_view key) const {
    return key.starts_with('.') ? Cat(architecture_, key) : std::string(key);
  }
  bool Has(std::string_view key) const { return metadata().Has(Key(key)); }
  void Int(std::string_view key, const char* name) {
    Set(metadata().Int(Key(key)), name);
  }
  void IntOr(std::string_view key, const char* name, const Json& absent) {
    if (Has(key)) return Int(key, name);
    config_[name] = absent;
  }
  void Float(std::string_view key, const char* name) {
    auto value = metadata().Float(Key(key));
    if (value.ok()) *value = ShortestDouble(*value);
    Set(value, name);
  }
  void FloatOr(std::string_view key, const char* name, double absent) {
    if (Has(key)) return Float(key, name);
    config_[name] = absent;
  }
  void BoolOr(std::string_view key, const char* name, bool absent) {
    if (Has(key)) return Set(metadata().Bool(Key(key)), name);
    config_[name] = absent;
  }
  const Status& status() const { return status_; }

 private:
  // The file must have each key that the config needs.
  template <typename T>
  void Set(const StatusOr<T>& value, const char* name) {
    if (value.ok()) {
      config_[name] = *value;
    } else if (status_.ok()) {
      status_ = InvalidArgument(Message(value.status()));
    }
  }

  const ModelContents& contents_;
  const std::string architecture_;
  Json& config_;
  Status status_;
};

// Reads llama3's scaling as the converter stores it: a divisor per frequency.
StatusOr<Json> DivisorsFrom(const LocatedTensor& tensor) {
  const weights::TensorInfo& info = tensor.info;
  if (info.dtype != weights::DType::kF32 || info.shape.size() != 1 ||
      info.cols() > kMaxRopeDivisors) {
    return InvalidArgument("tensor ", Quoted(info.name), " is ", info.dtype,
                           " ", weights::ShapeToString(info.shape),
                           ", expected a vector of F32, at most ",
                           kMaxRopeDivisors, " long");
  }
  std::vector<float> divisors(static_cast<size_t>(info.cols()));
  SLUICE_RETURN_IF_ERROR(tensor.file->ReadAt(
      tensor.offset, divisors.size() * sizeof(float), divisors.data()));
  Json scaling = {{"rope_type", "divisors"}};
  scaling["divisors"] = divisors;
  return scaling;
}

// Checks a factor that must be 1, or 0 for none.
Status CheckUnit(const ConfigWriter& config, std::string_view key) {
  if (!config.Has(key)) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const double value,
                          config.metadata().Float(config.Key(key)));
  if (value == 1.0 || value == 0.0) return OkStatus();
  return InvalidArgument(config.Key(key), " is ", value, ", supported is 1");
}

Status YarnKeys(ConfigWriter& scaling) {
  // A file without the key was made for its whole context.
  const char* original = "original_max_position_embeddings";
  if (scaling.Has(".rope.scaling.original_context_length")) {
    scaling.Int(".rope.scaling.original_context_length", original);
  } else {
    scaling.Int(".context_length", original);
  }
  scaling.FloatOr(".rope.scaling.yarn_beta_fast", "beta_fast", 32.0);
  scaling.FloatOr(".rope.scaling.yarn_beta_slow", "beta_slow", 1.0);
  SLUICE_RETURN_IF_ERROR(CheckUnit(scaling, ".rope.scaling.yarn_ext_factor"));
  SLUICE_RETURN_IF_ERROR(CheckUnit(scaling, ".rope.scaling.yarn_attn_factor"));
  return CheckUnit(scaling, ".rope.scaling.attn_factor");
}

StatusOr<Json> RopeScalingOf(const ConfigWriter& config,
                             const std::string& architecture) {
  if (const auto* tensor = FindTensor(config.contents(), "rope_freqs.weight")) {
    return DivisorsFrom(*tensor);
  }
  Json scaling;
  ConfigWriter writer(config.contents(), architecture, scaling);
  if (config.Has(".rope.scaling.type")) {
    SLUICE_ASSIGN_OR_RETURN(
        const std::string type,
        config.metadata().String(config.Key(".rope.scaling.type")));
    if (type == "none") return scaling;
    scaling["rope_type"] = type;
    writer.FloatOr(".rope.scaling.factor", "factor", 1.0);
    if (type == "yarn") SLUICE_RETURN_IF_ERROR(YarnKeys(writer));
  } else if (config.Has(".rope.scale_linear")) {
    scaling["rope_type"] = "linear";
    writer.Float(".rope.scale_linear", "factor");
  }
  SLUICE_RETURN_IF_ERROR(writer.status());
  return scaling;
}

// Returns the ids that end a text, a turn or a message.
StatusOr<Json> EosIds(const GgufMetadata& metadata) {
  Json ids = Json::array();
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id"}) {
    if (!metadata.Has(key)) continue;
    SLUICE_ASSIGN_OR_RETURN(const int64_t id, metadata.Int(key));
    if (std::find(ids.begin(), ids.end(), Json(id)) == ids.end()) {
      ids.push_back(id);
    }
  }
  return ids;
}

// Adds the size of a head; older files leave it out.
Status AddHeadDim(ConfigWriter& config) {
  const auto heads = config["num_attention_heads"].get<int64_t>();
  const auto hidden = config["hidden_size"].get<int64_t>();
  if (heads < 1) {
    return InvalidArgument(config.Key(".attention.head_count"), " ", heads);
  }
  config.IntOr(".attention.key_length", "head_dim", hidden / heads);
  return config.status();
}

// Checks a size that must equal head_dim.
Status CheckHeadDim(ConfigWriter& config, std::string_view key) {
  if (!config.Has(key)) return OkStatus();
  const Json& head_dim = config["head_dim"];
  SLUICE_ASSIGN_OR_RETURN(const int64_t value,
                          config.metadata().Int(config.Key(key)));
  if (head_dim == value) return OkStatus();
  return InvalidArgument(config.Key(key), " is ", value, ", head_dim ",
                         head_dim.get<int64_t>(),
                         "; a part of a head is not supported");
}

// Adds the keys of the dense families.
Status LlamaKeys(ConfigWriter& config) {
  // A Mixtral GGUF has Llama's architecture name.
  if (config.Has(".expert_count")) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t experts,
                            config.metadata().Int(config.Key(".expert_count")));
    if (experts > 0) config["model_type"] = "mixtral";
  }
  return CheckHeadDim(config, ".rope.dimension_count");
}

Status Qwen3Keys(ConfigWriter& config) {
  return CheckHeadDim(config, ".rope.dimension_count");
}

// GGUF's numbers for how a router's logits become weights.
enum Gating : int64_t { kUnset, kSoftmax, kSigmoid, kSoftmaxOfSelected };

// Adds a mixture's sizes and checks its gating, which a family fixes.
Status ExpertKeys(ConfigWriter& config, const char* count, Gating gating) {
  config.Int(".expert_count", count);
  config.Int(".expert_used_count", "num_experts_per_tok");
  config.Int(".expert_feed_forward_length", "moe_intermediate_size");
  config.BoolOr(".expert_weights_norm", "norm_topk_prob", true);
  constexpr std::string_view kKey = ".expert_gating_func";
  if (!config.Has(kKey)) return config.status();
  SLUICE_ASSIGN_OR_RETURN(const int64_t found,
                          config.metadata().Int(config.Key(kKey)));
  if (found == gating || found == kUnset) return config.status();
  return InvalidArgument(config.Key(kKey), " is ", found,
                         ", supported for this architecture is ",
                         static_cast<int64_t>(gating));
}

Status Qwen3MoeKeys(ConfigWriter& config) {
  SLUICE_RETURN_IF_ERROR(ExpertKeys(config, "num_experts", kSoftmax));
  SLUICE_RETURN_IF_ERROR(CheckUnit(config, ".expert_weights_scale"));
  return CheckHeadDim(config, ".rope.dimension_count");
}

Status GptOssKeys(ConfigWriter& config) {
  SLUICE_RETURN_IF_ERROR(
      ExpertKeys(config, "num_local_experts", kSoftmaxOfSelected));
  config["intermediate_size"] = config["moe_intermediate_size"];
  config.IntOr(".attention.sliding_window", "sliding_window", 128);
  config["attention_bias"] = true;
  // llama.cpp rounds YaRN's bounds to whole pairs, the family does not.
  Json& scaling = config["rope_scaling"];
  if (scaling.is_object()) scaling["truncate"] = false;
  return CheckHeadDim(config, ".rope.dimension_count");
}

// Adds the keys of both GLM families: partly rotated heads, biases.
Status Glm4Keys(ConfigWriter& config) {
  const auto head_dim = config["head_dim"].get<double>();
  if (config.Has(".rope.dimension_count")) {
    SLUICE_ASSIGN_OR_RETURN(
        const int64_t rotary,
        config.metadata().Int(config.Key(".rope.dimension_count")));
    config["partial_rotary_factor"] = static_cast<double>(rotary) / head_dim;
  }
  config["attention_bias"] =
      FindTensor(config.contents(), "blk.0.attn_q.bias") != nullptr;
  return config.status();
}

Status Glm4MoeKeys(ConfigWriter& config) {
  SLUICE_RETURN_IF_ERROR(ExpertKeys(config, "n_routed_experts", kSigmoid));
  config.IntOr(".expert_group_count", "n_group", 1);
  config.IntOr(".expert_group_used_count", "topk_group", 1);
  config.IntOr(".expert_shared_count", "n_shared_experts", 1);
  config.IntOr(".leading_dense_block_count", "first_k_dense_replace", 1);
  config.FloatOr(".expert_weights_scale", "routed_scaling_factor", 1.0);
  config.IntOr(".nextn_predict_layers", "num_nextn_predict_layers", 0);
  SLUICE_RETURN_IF_ERROR(config.status());
  // block_count includes the layers behind the last.
  const auto behind = config["num_nextn_predict_layers"].get<int64_t>();
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  if (behind < 0 || layers < behind) {
    return InvalidArgument("the GGUF's nextn_predict_layers is ", behind,
                           " of a block_count of ", layers);
  }
  config["num_hidden_layers"] = layers - behind;
  config["use_qk_norm"] =
      FindTensor(config.contents(), "blk.0.attn_q_norm.weight") != nullptr;
  return Glm4Keys(config);
}

// A GGUF architecture and the model_type that it stands for.
struct GgufFamily {
  std::string_view architecture;
  std::string_view model_type;
  std::string_view hugging_face;  // config.json's architectures
  // Reads the architecture's own keys.
  Status (*read)(ConfigWriter& config);
  // The converter interleaves q and k rows within a head.
  bool permuted = false;
};

constexpr GgufFamily kGgufFamilies[] = {
    {"llama", "llama", "LlamaForCausalLM", LlamaKeys, true},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", Qwen3Keys},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", Qwen3MoeKeys},
    {"glm4", "glm4", "Glm4ForCausalLM", Glm4Keys},
    {"glm4moe", "glm4_moe", "Glm4MoeForCausalLM", Glm4MoeKeys},
    {"gpt-oss", "gpt_oss", "GptOssForCausalLM", GptOssKeys},
};

StatusOr<Json> ConfigOf(const ModelContents& contents,
                        const GgufFamily& family) {
  const std::string architecture(family.architecture);
  Json json = Json::object();
  ConfigWriter config(contents, architecture, json);
  config["architectures"] = Json::array({std::string(family.hugging_face)});
  config["model_type"] = std::string(family.model_type);
  config["hidden_act"] = "silu";
  config.Int(".embedding_length", "hidden_size");
  config.Int(".block_count", "num_hidden_layers");
  config.Int(".attention.head_count", "num_attention_heads");
  SLUICE_RETURN_IF_ERROR(config.status());
  config.IntOr(".attention.head_count_kv", "num_key_value_heads",
               config["num_attention_heads"]);
  config.Int(".feed_forward_length", "intermediate_size");
  config.Int(".context_length", "max_position_embeddings");
  config.Float(".attention.layer_norm_rms_epsilon", "rms_norm_eps");
  config.FloatOr(".rope.freq_base", "rope_theta", 10000.0);
  SLUICE_RETURN_IF_ERROR(config.status());
  SLUICE_RETURN_IF_ERROR(AddHeadDim(config));
  SLUICE_RETURN_IF_ERROR(CheckHeadDim(config, ".attention.value_length"));
  const LocatedTensor* embedding = FindTensor(contents, "token_embd.weight");
  if (embedding == nullptr) {
    return InvalidArgument("tensor 'token_embd.weight' is missing");
  }
  config.IntOr(".vocab_size", "vocab_size", embedding->info.rows());
  SLUICE_ASSIGN_OR_RETURN(config["rope_scaling"],
                          RopeScalingOf(config, architecture));
  config["tie_word_embeddings"] =
      FindTensor(contents, "output.weight") == nullptr;
  config.IntOr("tokenizer.ggml.bos_token_id", "bos_token_id", nullptr);
  SLUICE_RETURN_IF_ERROR(config.status());
  SLUICE_ASSIGN_OR_RETURN(config["eos_token_id"], EosIds(config.metadata()));
  SLUICE_RETURN_IF_ERROR(family.read(config));
  SLUICE_RETURN_IF_ERROR(config.status());
  return json;
}

// Marks q and k rows, which the converter interleaves within a head.
Status MarkPermuted(LocatedTensor& tensor, int64_t heads) {
  const weights::TensorInfo& info = tensor.info;
  const int64_t rows = info.rows();
  if (info.shape.size() != 2 || heads < 1 || rows % heads != 0 ||
      rows / heads % 2 != 0) {
    return InvalidArgument("tensor ", Quoted(info.name), " of shape ",
                           weights::ShapeToString(info.shape),
                           " does not divide into ", heads,
                           " heads of even size");
  }
  tensor.permuted_head_rows = rows / heads;
  return OkStatus();
}

Status RenameTensors(const GgufFamily& family, const TensorTable& table,
                     ModelContents& contents) {
  const auto heads = [&](const char* key) {
    return contents.config[key].get<int64_t>();
  };
  for (LocatedTensor& tensor : contents.tensors) {
    const GgufTensorPlace place = PlaceOfGguf(table, tensor.info.name);
    if (place.row == nullptr) continue;
    const std::string_view gguf = place.row->gguf;
    tensor.info.name = NameOf(*place.row, place.layer);
    if (!family.permuted) continue;
    if (gguf == "attn_q.weight") {
      SLUICE_RETURN_IF_ERROR(
          MarkPermuted(tensor, heads("num_attention_heads")));
    } else if (gguf == "attn_k.weight") {
      SLUICE_RETURN_IF_ERROR(
          MarkPermuted(tensor, heads("num_key_value_heads")));
    }
  }
  return OkStatus();
}

Status Translate(ModelContents& contents) {
  const auto architecture = contents.gguf->String("general.architecture");
  if (!architecture.ok())
    return InvalidArgument(Message(architecture.status()));
  for (const GgufFamily& family : kGgufFamilies) {
    if (family.architecture != *architecture) continue;
    SLUICE_ASSIGN_OR_RETURN(contents.config, ConfigOf(contents, family));
    const auto found = FindFamily(ConfigReader(contents.config));
    if (!found.ok()) return OkStatus();  // ParseModelConfig refuses it
    return RenameTensors(family, *(*found)->tensors, contents);
  }
  // ParseModelConfig refuses this model_type by its name.
  contents.config["model_type"] = Cat("gguf ", *architecture);
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<weights::ModelFile>> OpenModel(
    const std::string& path) {
  return weights::OpenModel(path, Translate);
}

}  // namespace sluice
