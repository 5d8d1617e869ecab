#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/weights/model_contents.h"

namespace sluice::weights {
namespace {

constexpr int64_t kMaxRopeDivisors = 4096;

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kTop = {{
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 9>
    kOfLayer = {{
        {"attn_norm", "input_layernorm"},
        {"attn_q", "self_attn.q_proj"},
        {"attn_k", "self_attn.k_proj"},
        {"attn_v", "self_attn.v_proj"},
        {"attn_output", "self_attn.o_proj"},
        {"ffn_norm", "post_attention_layernorm"},
        {"ffn_gate", "mlp.gate_proj"},
        {"ffn_up", "mlp.up_proj"},
        {"ffn_down", "mlp.down_proj"},
    }};

const LocatedTensor* FindTensor(const ModelContents& contents,
                                std::string_view gguf_name) {
  for (const LocatedTensor& tensor : contents.tensors) {
    if (tensor.info.name == gguf_name) return &tensor;
  }
  return nullptr;
}

// The double whose decimal form is the shortest that gives this float:
// 1e-05, as config.json has it, where the file has it rounded to F32.
double ShortestDouble(double stored) {
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(),
                                 static_cast<float>(stored));
  double value = stored;
  std::from_chars(text.data(), end.ptr, value);
  return value;
}

// Reads typed keys, some of which may be absent; keeps the first error.
class ConfigWriter {
 public:
  ConfigWriter(const GgufMetadata& metadata, Json& config)
      : metadata_(metadata), config_(config) {}

  void Int(std::string_view key, const char* name) {
    auto value = metadata_.Int(key);
    if (value.ok()) {
      config_[name] = *value;
    } else {
      Keep(value.status());
    }
  }
  void IntOr(std::string_view key, const char* name, const Json& absent) {
    if (metadata_.Has(key)) return Int(key, name);
    config_[name] = absent;
  }
  void Float(std::string_view key, const char* name) {
    auto value = metadata_.Float(key);
    if (value.ok()) {
      config_[name] = ShortestDouble(*value);
    } else {
      Keep(value.status());
    }
  }
  void FloatOr(std::string_view key, const char* name, double absent) {
    if (metadata_.Has(key)) return Float(key, name);
    config_[name] = absent;
  }
  const Status& status() const { return status_; }

 private:
  // A key that the config needs and the file lacks is the file's fault.
  void Keep(const Status& status) {
    if (!status_.ok()) return;
    status_ = InvalidArgument(Message(status));
  }

  const GgufMetadata& metadata_;
  Json& config_;
  Status status_;
};

// llama3's scaling as the converter stores it: one divisor per frequency.
StatusOr<Json> DivisorsFrom(const LocatedTensor& tensor) {
  const TensorInfo& info = tensor.info;
  if (info.dtype != DType::kF32 || info.shape.size() != 1 ||
      info.cols() > kMaxRopeDivisors) {
    return InvalidArgument("tensor ", Quoted(info.name), " is ", info.dtype,
                           " ", ShapeToString(info.shape),
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

StatusOr<Json> RopeScaling(const ModelContents& contents) {
  const GgufMetadata& metadata = *contents.gguf;
  if (const auto* tensor = FindTensor(contents, "rope_freqs.weight")) {
    return DivisorsFrom(*tensor);
  }
  Json scaling;
  if (metadata.Has("llama.rope.scaling.type")) {
    SLUICE_ASSIGN_OR_RETURN(const std::string type,
                            metadata.String("llama.rope.scaling.type"));
    if (type == "none") return scaling;
    scaling["rope_type"] = type;
    ConfigWriter writer(metadata, scaling);
    writer.FloatOr("llama.rope.scaling.factor", "factor", 1.0);
    SLUICE_RETURN_IF_ERROR(writer.status());
  } else if (metadata.Has("llama.rope.scale_linear")) {
    scaling["rope_type"] = "linear";
    ConfigWriter writer(metadata, scaling);
    writer.Float("llama.rope.scale_linear", "factor");
    SLUICE_RETURN_IF_ERROR(writer.status());
  }
  return scaling;
}

// Ends of generation: of the text, of a turn, of a message.
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

// Rotary and head sizes, which older files leave to be derived.
Status AddHeadDim(const GgufMetadata& metadata, Json& config) {
  const auto heads = config["num_attention_heads"].get<int64_t>();
  const auto hidden = config["hidden_size"].get<int64_t>();
  if (heads < 1) return InvalidArgument("llama.attention.head_count ", heads);
  ConfigWriter writer(metadata, config);
  writer.IntOr("llama.attention.key_length", "head_dim", hidden / heads);
  SLUICE_RETURN_IF_ERROR(writer.status());
  const Json& head_dim = config["head_dim"];
  for (const char* key :
       {"llama.rope.dimension_count", "llama.attention.value_length"}) {
    if (!metadata.Has(key)) continue;
    SLUICE_ASSIGN_OR_RETURN(const int64_t value, metadata.Int(key));
    if (head_dim != value) {
      return InvalidArgument(key, " is ", value, ", head_dim ",
                             head_dim.get<int64_t>(),
                             "; a part of a head is not supported");
    }
  }
  return OkStatus();
}

}  // namespace

std::string LlamaTensorName(const std::string& gguf_name) {
  for (const auto& [gguf, hf] : kTop) {
    if (gguf_name == gguf) return std::string(hf);
  }
  const std::string_view name = gguf_name;
  if (!name.starts_with("blk.")) return gguf_name;
  const size_t dot = name.find('.', 4);
  if (dot == std::string_view::npos) return gguf_name;
  const std::string_view layer = name.substr(4, dot - 4);
  const std::string_view rest = name.substr(dot + 1);
  const size_t end = rest.find('.');
  if (end == std::string_view::npos) return gguf_name;
  for (const auto& [gguf, hf] : kOfLayer) {
    if (rest.substr(0, end) == gguf) {
      return Cat("model.layers.", layer, ".", hf, rest.substr(end));
    }
  }
  return gguf_name;
}

StatusOr<Json> LlamaConfigFromGguf(const ModelContents& contents) {
  const GgufMetadata& metadata = *contents.gguf;
  Json config = Json::object();
  config["architectures"] = Json::array({"LlamaForCausalLM"});
  config["model_type"] = "llama";
  // Mixtral came to GGUF under the same architecture's name.
  if (metadata.Has("llama.expert_count")) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t experts,
                            metadata.Int("llama.expert_count"));
    if (experts > 0) config["model_type"] = "mixtral";
  }
  config["hidden_act"] = "silu";
  ConfigWriter writer(metadata, config);
  writer.Int("llama.embedding_length", "hidden_size");
  writer.Int("llama.block_count", "num_hidden_layers");
  writer.Int("llama.attention.head_count", "num_attention_heads");
  SLUICE_RETURN_IF_ERROR(writer.status());
  writer.IntOr("llama.attention.head_count_kv", "num_key_value_heads",
               config["num_attention_heads"]);
  writer.Int("llama.feed_forward_length", "intermediate_size");
  writer.Int("llama.context_length", "max_position_embeddings");
  writer.Float("llama.attention.layer_norm_rms_epsilon", "rms_norm_eps");
  writer.FloatOr("llama.rope.freq_base", "rope_theta", 10000.0);
  SLUICE_RETURN_IF_ERROR(writer.status());
  SLUICE_RETURN_IF_ERROR(AddHeadDim(metadata, config));
  const LocatedTensor* embedding = FindTensor(contents, "token_embd.weight");
  if (embedding == nullptr) {
    return InvalidArgument("tensor 'token_embd.weight' is missing");
  }
  writer.IntOr("llama.vocab_size", "vocab_size", embedding->info.rows());
  SLUICE_ASSIGN_OR_RETURN(config["rope_scaling"], RopeScaling(contents));
  config["tie_word_embeddings"] =
      FindTensor(contents, "output.weight") == nullptr;
  writer.IntOr("tokenizer.ggml.bos_token_id", "bos_token_id", nullptr);
  SLUICE_RETURN_IF_ERROR(writer.status());
  SLUICE_ASSIGN_OR_RETURN(config["eos_token_id"], EosIds(metadata));
  return config;
}

}  // namespace sluice::weights
