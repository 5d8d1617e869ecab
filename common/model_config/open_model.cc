#include "common/model_config/open_model.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/config_report.h"
#include "common/model_config/dllama_model.h"
#include "common/model_config/gguf_keys.h"
#include "common/model_config/gguf_tensors.h"
#include "common/model_config/gguf_view.h"
#include "common/model_config/model_families.h"
#include "common/model_config/rope_frequencies.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/file.h"
#include "common/weights/gguf_ends.h"
#include "common/weights/model_contents.h"

namespace sluice {
namespace {

using weights::GgufMetadata;
using weights::LocatedTensor;
using weights::ModelContents;
using weights::Quoted;

const LocatedTensor* FindTensor(const ModelContents& contents,
                                std::string_view gguf_name) {
  for (const LocatedTensor& tensor : contents.tensors) {
    if (tensor.info.name == gguf_name) return &tensor;
  }
  return nullptr;
}

// Writes config keys from the metadata and keeps the first error. A key that
// begins with a dot is the architecture's: ".block_count" is
// "llama.block_count".
class ConfigWriter {
 public:
  // `asked` gets the keys that are asked for, and outlives the writer.
  ConfigWriter(const ModelContents& contents, std::string architecture,
               Json& config, std::set<std::string>& asked)
      : contents_(contents),
        architecture_(std::move(architecture)),
        config_(config),
        asked_(asked) {}

  const ModelContents& contents() const { return contents_; }
  const GgufMetadata& metadata() const { return *contents_.gguf; }
  Json& operator[](const char* name) { return config_[name]; }
  // Returns the whole key, and notes that it is asked for.
  std::string Key(std::string_view key) const {
    asked_.emplace(key);
    return key.starts_with('.') ? Cat(architecture_, key) : std::string(key);
  }
  std::set<std::string>& asked() const { return asked_; }
  bool Has(std::string_view key) const { return metadata().Has(Key(key)); }
  void Int(std::string_view key, const char* name) {
    Set(IntOrEqualInts(Key(key)), name);
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
  // Adds what the file, or the key's `absent`, says.
  Status Add(const GgufKey& key) {
    if (key.config == nullptr) {
      Key(key.gguf);  // the family's `read` reads it, or another key tells
      return status_;
    }
    if (!Has(key.gguf) && key.absent != nullptr) {
      config_[key.config] = key.absent(config_);
    } else if (key.type == GgufKey::Type::kInt) {
      Int(key.gguf, key.config);
    } else if (key.type == GgufKey::Type::kFloat) {
      Float(key.gguf, key.config);
    } else {
      Set(metadata().Bool(Key(key.gguf)), key.config);
    }
    return status_;
  }
  const Status& status() const { return status_; }

 private:
  // Reads an integer, or an array with the same one for every layer.
  StatusOr<int64_t> IntOrEqualInts(const std::string& key) const {
    auto integers = metadata().Ints(key);
    if (!integers.ok() || integers->empty()) return metadata().Int(key);
    for (size_t layer = 1; layer < integers->size(); ++layer) {
      if ((*integers)[layer] == integers->front()) continue;
      return InvalidArgument("GGUF key ", Quoted(key), " is ",
                             integers->front(), " for layer 0 and ",
                             (*integers)[layer], " for layer ", layer,
                             "; layers that differ in it are not supported");
    }
    return integers->front();
  }
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
  std::set<std::string>& asked_;
  Status status_;
};

// Reads llama3's scaling as the converter stores it: a divisor per frequency.
StatusOr<Json> DivisorsFrom(const LocatedTensor& tensor) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<float> divisors,
                          ReadRopeVector(tensor));
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

// Checks that nothing turns by the fourth number of a position where text has
// three: llama.cpp leaves those pairs as they are. A key that is no list is of
// all sections.
Status CheckSections(const ConfigWriter& config, const GgufFamily& family) {
  constexpr std::string_view kKey = ".rope.dimension_sections";
  constexpr size_t kFourth = 3;
  if (!family.three_sections || !config.Has(kKey)) return OkStatus();
  const auto sections = config.metadata().Ints(config.Key(kKey));
  int64_t fourth = 0;
  if (!sections.ok()) {
    SLUICE_ASSIGN_OR_RETURN(fourth, config.metadata().Int(config.Key(kKey)));
  } else if (sections->size() > kFourth) {
    fourth = (*sections)[kFourth];
  }
  if (fourth == 0) return OkStatus();
  return InvalidArgument(config.Key(kKey), " has a fourth section of ", fourth,
                         ", supported is 0");
}

// The converter copies config.json's attention_factor, which most often is the
// usual one.
Status AttentionFactor(ConfigWriter& scaling) {
  constexpr std::string_view kKey = ".rope.scaling.yarn_attn_factor";
  if (!scaling.Has(kKey) || !scaling.status().ok()) return scaling.status();
  SLUICE_ASSIGN_OR_RETURN(const double stored,
                          scaling.metadata().Float(scaling.Key(kKey)));
  const double usual = YarnScale(scaling["factor"].get<double>(), 1.0);
  if (stored != 1.0 && stored != 0.0 &&
      static_cast<float>(stored) != static_cast<float>(usual)) {
    scaling.Float(kKey, "attention_factor");
  }
  return scaling.status();
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
  SLUICE_RETURN_IF_ERROR(AttentionFactor(scaling));
  return CheckUnit(scaling, ".rope.scaling.attn_factor");
}

StatusOr<Json> RopeScalingOf(const ConfigWriter& config,
                             const std::string& architecture) {
  if (const auto* tensor = FindTensor(config.contents(), kRopeDivisors)) {
    return DivisorsFrom(*tensor);
  }
  Json scaling;
  ConfigWriter writer(config.contents(), architecture, scaling, config.asked());
  if (config.Has(".rope.scaling.type")) {
    SLUICE_ASSIGN_OR_RETURN(
        const std::string type,
        config.metadata().String(config.Key(".rope.scaling.type")));
    if (type == "none") return scaling;
    scaling["rope_type"] = type;
    writer.FloatOr(".rope.scaling.factor", "factor", 1.0);
    if (type == "yarn") SLUICE_RETURN_IF_ERROR(YarnKeys(writer));
  } else {
    // A factor without a type is linear, as in llama.cpp; 0 is none.
    for (const char* key : {".rope.scaling.factor", ".rope.scale_linear"}) {
      if (!config.Has(key)) continue;
      SLUICE_ASSIGN_OR_RETURN(const double factor,
                              config.metadata().Float(config.Key(key)));
      if (factor == 0.0) continue;
      scaling["rope_type"] = "linear";
      writer.Float(key, "factor");
      break;
    }
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
  for (const int64_t id : weights::EndsByText(metadata)) {
    if (std::find(ids.begin(), ids.end(), Json(id)) == ids.end()) {
      ids.push_back(id);
    }
  }
  return ids;
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
  return CheckHeadDim(config, ".rope.dimension_count");
}

Status Qwen3Keys(ConfigWriter& config) {
  return CheckHeadDim(config, ".rope.dimension_count");
}

// Checks a mixture's gating, which a family fixes.
Status CheckGating(const ConfigWriter& config, GgufGating gating) {
  constexpr std::string_view kKey = ".expert_gating_func";
  if (gating == GgufGating::kUnset || !config.Has(kKey)) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const int64_t found,
                          config.metadata().Int(config.Key(kKey)));
  const auto wanted = static_cast<int64_t>(gating);
  if (found == wanted || found == int64_t{0}) return OkStatus();
  return InvalidArgument(config.Key(kKey), " is ", found,
                         ", supported for this architecture is ", wanted);
}

Status Qwen3MoeKeys(ConfigWriter& config) {
  SLUICE_RETURN_IF_ERROR(CheckUnit(config, ".expert_weights_scale"));
  return CheckHeadDim(config, ".rope.dimension_count");
}

Status GptOssKeys(ConfigWriter& config) {
  config["intermediate_size"] = config["moe_intermediate_size"];
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

// Reads what the keys' table cannot say of an architecture.
struct FamilyReader {
  std::string_view architecture;
  Status (*read)(ConfigWriter& config);
};

constexpr FamilyReader kReaders[] = {
    {"llama", LlamaKeys}, {"qwen3", Qwen3Keys},     {"qwen3moe", Qwen3MoeKeys},
    {"glm4", Glm4Keys},   {"glm4moe", Glm4MoeKeys}, {"gpt-oss", GptOssKeys},
};

Status ReadOwnKeys(const GgufFamily& family, ConfigWriter& config) {
  for (const FamilyReader& reader : kReaders) {
    if (reader.architecture != family.architecture) continue;
    SLUICE_RETURN_IF_ERROR(reader.read(config));
  }
  return config.status();
}

StatusOr<Json> ConfigOf(const ModelContents& contents, const GgufFamily& family,
                        std::vector<std::string>& unread) {
  const std::string architecture(family.architecture);
  Json json = Json::object();
  std::set<std::string> asked;
  ConfigWriter config(contents, architecture, json, asked);
  config["architectures"] = Json::array({std::string(family.hugging_face)});
  config["model_type"] = std::string(family.model_type);
  config["hidden_act"] = std::string(family.activation);
  const LocatedTensor* embedding = FindTensor(contents, "token_embd.weight");
  config["vocab_size"] = embedding != nullptr ? embedding->info.rows() : 0;
  for (const GgufKey& key : KeysOf(family)) {
    SLUICE_RETURN_IF_ERROR(config.Add(key));
  }
  // Readers make lists of so many layers.
  const Json& layers = config["num_hidden_layers"];
  if (layers.is_number() && (layers < 1 || layers > kMaxLayers)) {
    return InvalidArgument(config.Key(".block_count"), " is ", DumpJson(layers),
                           ", limits 1 and ", kMaxLayers);
  }
  if (embedding == nullptr) {
    return InvalidArgument("tensor 'token_embd.weight' is missing");
  }
  SLUICE_RETURN_IF_ERROR(CheckGating(config, family.gating));
  SLUICE_RETURN_IF_ERROR(CheckSections(config, family));
  if (!family.own_head_sizes) {
    SLUICE_RETURN_IF_ERROR(CheckHeadDim(config, ".attention.value_length"));
  }
  SLUICE_ASSIGN_OR_RETURN(config["rope_scaling"],
                          RopeScalingOf(config, architecture));
  // The file says all of RoPE: no class's default takes its place.
  config["rope_parameters"] = nullptr;
  config["tie_word_embeddings"] =
      FindTensor(contents, "output.weight") == nullptr;
  config.IntOr("tokenizer.ggml.bos_token_id", "bos_token_id", nullptr);
  SLUICE_RETURN_IF_ERROR(config.status());
  SLUICE_ASSIGN_OR_RETURN(config["eos_token_id"], EosIds(config.metadata()));
  SLUICE_RETURN_IF_ERROR(ReadOwnKeys(family, config));
  if (family.read != nullptr) {
    SLUICE_RETURN_IF_ERROR(family.read({contents, architecture, asked}, json));
  }
  SLUICE_ASSIGN_OR_RETURN(
      unread, UnreadGgufKeys(config.metadata(), architecture, asked));
  return json;
}

Status Translate(ModelContents& contents, std::vector<std::string>& unread) {
  if (contents.dllama.has_value()) return TranslateDllama(contents);
  SLUICE_ASSIGN_OR_RETURN(contents.config, ConfigOfGguf(contents, unread));
  const auto found = FindFamily(ConfigReader(contents.config));
  if (!found.ok()) return OkStatus();  // ParseModelConfig refuses it
  return RenameGgufTensors(*FindGgufFamily(*contents.gguf), *(*found)->tensors,
                           contents);
}

}  // namespace

StatusOr<Json> ConfigOfGguf(const ModelContents& contents,
                            std::vector<std::string>& unread) {
  const auto architecture = contents.gguf->String("general.architecture");
  if (!architecture.ok()) {
    return InvalidArgument(Message(architecture.status()));
  }
  const GgufFamily* family = FindGgufFamily(*contents.gguf);
  if (family != nullptr) return ConfigOf(contents, *family, unread);
  // ParseModelConfig refuses this model_type by its name.
  return Json({{"model_type", Cat("gguf ", *architecture)}});
}

StatusOr<std::unique_ptr<weights::ModelFile>> OpenModel(
    const std::string& path) {
  std::vector<std::string> unread;
  SLUICE_ASSIGN_OR_RETURN(
      auto model, weights::OpenModel(path, [&](ModelContents& contents) {
        return Translate(contents, unread);
      }));
  if (auto parts = ComputedPartsOf(*model)) {
    if (model->gguf() != nullptr) parts->unread_keys = std::move(unread);
    model->SetComputed(*std::move(parts));
  }
  return model;
}

}  // namespace sluice
