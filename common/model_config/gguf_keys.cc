#include "common/model_config/gguf_keys.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/model_config/config_difference.h"
#include "common/model_config/gguf_rows.h"
#include "common/model_config/open_model.h"
#include "common/model_config/rope_frequencies.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/model_contents.h"

namespace sluice {
namespace {

using weights::GgufMetadata;
using weights::GgufType;
using enum GgufKey::Type;

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
    const std::string name = Cat(architecture_, key.gguf);
    if (key.type == kBool) {
      metadata_.Insert(name,
                       {GgufType::kBool, GgufType::kUint8, value.get<bool>()});
      return;
    }
    std::vector<int64_t> list;
    for (const Json& each : value) list.push_back(each.get<bool>() ? 1 : 0);
    metadata_.Insert(name, {GgufType::kArray, GgufType::kBool, list});
  }
  void RopeScaling(const RopeScaling& scaling) {
    using Kind = RopeScaling::Kind;
    if (scaling.kind == Kind::kLongRope) {
      Int(".rope.scaling.original_context_length",
          static_cast<int64_t>(scaling.original_max_position_embeddings));
      return Float(".rope.scaling.attn_factor", scaling.attention_factor);
    }
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

// Whether tensors, or a theta of 24 bits, tell a scaling.
bool IsToldElsewhere(const RopeScaling& scaling) {
  using Kind = RopeScaling::Kind;
  return scaling.kind == Kind::kLlama3 || scaling.kind == Kind::kDivisors ||
         scaling.kind == Kind::kLongRope || scaling.kind == Kind::kDynamic;
}

// Returns what keys of 24 bits tell of a RoPE.
RopeConfig Told(RopeConfig rope, bool is_told_elsewhere) {
  rope.theta = static_cast<float>(rope.theta);
  rope.inv_freq.clear();
  rope.long_inv_freq.clear();
  for (double* number : {&rope.scaling.factor, &rope.scaling.attention_factor,
                         &rope.scaling.beta_fast, &rope.scaling.beta_slow}) {
    *number = static_cast<float>(*number);
  }
  if (is_told_elsewhere) {
    rope.theta = 0.0;
    rope.scaling = RopeScaling();
  }
  return rope;
}

bool AreSame(const std::vector<RopeConfig>& wanted,
             const std::vector<RopeConfig>& made) {
  // Where one has more, layers differ.
  for (size_t i = 0; i < std::min(wanted.size(), made.size()); ++i) {
    const bool elsewhere = i == 0 && IsToldElsewhere(wanted[i].scaling);
    if (Told(wanted[i], elsewhere) != Told(made[i], elsewhere)) return false;
  }
  return true;
}

// Checks that a reader of the file finds the model again.
Status CheckReadable(const GgufFamily& family, const ModelConfig& config,
                     const GgufMetadata& metadata,
                     const std::vector<weights::TensorInfo>& tensors) {
  weights::ModelContents contents;
  contents.gguf = metadata;
  for (const weights::TensorInfo& tensor : tensors) {
    // Its elements are in no file yet.
    if (!tensor.name.starts_with("rope_f")) {
      contents.tensors.push_back({tensor});
    }
  }
  std::vector<std::string> unread;
  SLUICE_ASSIGN_OR_RETURN(const Json made, ConfigOfGguf(contents, unread));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig parsed, ParseModelConfig(made));
  const std::string difference = AreSame(config.ropes, parsed.ropes)
                                     ? DifferenceOf(config, parsed)
                                     : "rope_scaling";
  if (difference.empty()) return OkStatus();
  return Unimplemented("config.json: a GGUF of architecture ",
                       family.architecture, " cannot tell ", difference);
}

// Returns all families, those of one architecture side by side.
std::vector<const GgufFamily*> AllFamilies() {
  std::vector<const GgufFamily*> all;
  for (const auto& table : {gguf::Families(), gguf::StateFamilies()}) {
    for (const GgufFamily& family : table) all.push_back(&family);
  }
  return all;
}

}  // namespace

std::vector<GgufKey> KeysOf(const GgufFamily& family) {
  std::vector<GgufKey> keys(std::begin(gguf::kShared), std::end(gguf::kShared));
  for (GgufKey& key : keys) {
    if (family.layer_norm_epsilon == nullptr || key.gguf != gguf::kRmsEpsilon) {
      continue;
    }
    key.gguf = ".attention.layer_norm_epsilon";
    key.config = family.layer_norm_epsilon;
  }
  const size_t num_shared = keys.size();
  for (const GgufKey& own : family.keys) {
    const auto end = keys.begin() + static_cast<std::ptrdiff_t>(num_shared);
    const auto shared =
        std::find_if(keys.begin(), end,
                     [&](const GgufKey& key) { return key.gguf == own.gguf; });
    if (shared != end) {
      *shared = own;
    } else {
      keys.push_back(own);
    }
  }
  return keys;
}

const GgufFamily* FindGgufFamily(const GgufMetadata& metadata) {
  const auto architecture = metadata.String("general.architecture");
  if (!architecture.ok()) return nullptr;
  for (const GgufFamily* family : AllFamilies()) {
    if (family->architecture == *architecture &&
        (family->has == nullptr || family->has(metadata))) {
      return family;
    }
  }
  return nullptr;
}

const GgufFamily* GgufFamilyOf(std::string_view model_type) {
  for (const GgufFamily* family : AllFamilies()) {
    if (family->model_type == model_type) return family;
  }
  return nullptr;
}

std::string GgufArchitectures() {
  std::string names;
  std::string_view last;
  for (const GgufFamily* family : AllFamilies()) {
    if (family->architecture == last) continue;
    last = family->architecture;
    names += Cat(names.empty() ? "" : ", ", last);
  }
  return names;
}

StatusOr<GgufMetadata> GgufKeysOf(
    const ModelConfig& config,
    const std::vector<weights::TensorInfo>& tensors) {
  const GgufFamily* family = GgufFamilyOf(config.model_type);
  if (family == nullptr) {
    return Unimplemented("model_type '", config.model_type, "' has no GGUF");
  }
  if (!family->is_written) {
    return Unimplemented("model_type '", config.model_type,
                         "': a GGUF of architecture ", family->architecture,
                         " is read, and not written yet");
  }
  KeyWriter writer(family->architecture);
  writer.Text("general.architecture", std::string(family->architecture));
  writer.Text("general.type", "model");
  for (const GgufKey& key : KeysOf(*family)) {
    writer.Add(key, key.value(config));
  }
  const RopeConfig& rope = config.ropes.front();
  writer.Int(".attention.value_length",
             config.layers.front().attention.head_dim);
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

std::vector<GgufRopeTensor> RopeTensorsOf(const RopeConfig& rope) {
  using Kind = RopeScaling::Kind;
  const auto floats = [](const std::vector<double>& from) {
    return std::vector<float>(from.begin(), from.end());
  };
  if (rope.scaling.kind == Kind::kLongRope) {
    return {{kLongRopeDivisors, floats(rope.scaling.long_divisors)},
            {kShortRopeDivisors, floats(rope.scaling.divisors)}};
  }
  if (rope.scaling.kind != Kind::kLlama3 &&
      rope.scaling.kind != Kind::kDivisors) {
    return {};
  }
  const auto plain = RopeInvFreq(rope.theta, rope.rotary_dim, {});
  GgufRopeTensor tensor = {kRopeDivisors, {}};
  for (size_t i = 0; i < plain.size(); ++i) {
    tensor.elements.push_back(static_cast<float>(plain[i] / rope.inv_freq[i]));
  }
  return {tensor};
}

std::string GgufNameOf(std::string_view row_name, int32_t layer) {
  return layer < 0 ? std::string(row_name)
                   : Cat(kGgufLayerPrefix, layer, ".", row_name);
}

}  // namespace sluice
