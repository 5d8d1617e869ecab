#include "common/model/model_config.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/json.h"
#include "common/model/rope_frequencies.h"
#include "common/model/stop_ids.h"

namespace sluice {
namespace {

// Limits far above every released model, and low enough that products of
// two or three of them stay within int64_t.
constexpr int64_t kMaxHidden = 1 << 17;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxIntermediate = 1 << 20;
constexpr int64_t kMaxVocab = 1 << 22;
constexpr int64_t kMaxPositions = 1 << 28;
constexpr double kMaxTheta = 1e15;

// Typed reads of one config's keys; each error names key, limit and value.
class ConfigReader {
 public:
  explicit ConfigReader(const Json& config) : config_(config) {}

  // Null for an absent key and for null, which configs use alike.
  const Json* Find(const char* key) const {
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) return nullptr;
    return &*found;
  }

  Status Int(const char* key, int64_t max, std::optional<int64_t> absent,
             int32_t& out) const {
    int64_t value = 0;
    if (const Json* found = Find(key)) {
      if (!found->is_number_integer()) return WrongType(key, "an integer");
      if (found->is_number_unsigned() &&
          !std::in_range<int64_t>(found->get<uint64_t>())) {
        return InvalidArgument(key, " is ", DumpJson(*found), ", limits 1 and ",
                               max);
      }
      value = found->get<int64_t>();
    } else if (absent) {
      value = *absent;
    } else {
      return InvalidArgument("key ", key, " is missing");
    }
    if (value < 1 || value > max) {
      return InvalidArgument(key, " is ", value, ", limits 1 and ", max);
    }
    out = static_cast<int32_t>(value);
    return OkStatus();
  }

  // A number in (0, max].
  Status Positive(const char* key, double max, double absent,
                  double& out) const {
    out = absent;
    if (const Json* found = Find(key)) {
      if (!found->is_number()) return WrongType(key, "a number");
      out = found->get<double>();
    }
    if (!(out > 0.0 && out <= max)) {
      return InvalidArgument(key, " is ", out, ", limits 0 (excluded) and ",
                             max);
    }
    return OkStatus();
  }

  Status Bool(const char* key, bool absent, bool& out) const {
    out = absent;
    if (const Json* found = Find(key)) {
      if (!found->is_boolean()) return WrongType(key, "true or false");
      out = found->get<bool>();
    }
    return OkStatus();
  }

  // Refuses a feature that changes the arithmetic and is not built.
  Status MustBe(const char* key, const Json& built) const {
    const Json* found = Find(key);
    if (found == nullptr || *found == built) return OkStatus();
    return InvalidArgument(key, " ", DumpJson(*found),
                           " is not supported, only ", DumpJson(built));
  }

 private:
  Status WrongType(const char* key, std::string_view wanted) const {
    return InvalidArgument(key, " is ", config_[key].type_name(), ", expected ",
                           wanted);
  }

  const Json& config_;
};

Status ReadSizes(const ConfigReader& reader, ModelConfig& parsed) {
  SLUICE_RETURN_IF_ERROR(
      reader.Int("hidden_size", kMaxHidden, {}, parsed.hidden_size));
  SLUICE_RETURN_IF_ERROR(
      reader.Int("num_hidden_layers", kMaxLayers, {}, parsed.num_layers));
  SLUICE_RETURN_IF_ERROR(
      reader.Int("num_attention_heads", kMaxHeads, {}, parsed.num_heads));
  SLUICE_RETURN_IF_ERROR(reader.Int("num_key_value_heads", kMaxHeads,
                                    parsed.num_heads, parsed.num_kv_heads));
  if (parsed.num_heads % parsed.num_kv_heads != 0) {
    return InvalidArgument("num_attention_heads ", parsed.num_heads,
                           " is no multiple of num_key_value_heads ",
                           parsed.num_kv_heads);
  }
  if (reader.Find("head_dim") == nullptr &&
      parsed.hidden_size % parsed.num_heads != 0) {
    return InvalidArgument("hidden_size ", parsed.hidden_size,
                           " is no multiple of num_attention_heads ",
                           parsed.num_heads, ", and there is no head_dim");
  }
  SLUICE_RETURN_IF_ERROR(reader.Int("head_dim", kMaxHeadDim,
                                    parsed.hidden_size / parsed.num_heads,
                                    parsed.head_dim));
  if (parsed.head_dim % 2 != 0) {
    return InvalidArgument("head_dim ", parsed.head_dim, " is odd");
  }
  SLUICE_RETURN_IF_ERROR(reader.Int("intermediate_size", kMaxIntermediate, {},
                                    parsed.intermediate_size));
  SLUICE_RETURN_IF_ERROR(
      reader.Int("vocab_size", kMaxVocab, {}, parsed.vocab_size));
  return reader.Int("max_position_embeddings", kMaxPositions, 2048,
                    parsed.max_position_embeddings);
}

// A position is an angle of at most as many radians (see kernels/rope.h).
Status CheckFrequencies(const ModelConfig& parsed) {
  for (size_t i = 0; i < parsed.inv_freq.size(); ++i) {
    const double frequency = parsed.inv_freq[i];
    if (frequency > 0.0 && frequency <= 1.0) continue;
    return InvalidArgument("rope_theta ", parsed.rope_theta,
                           " with rope_scaling gives pair ", i, " frequency ",
                           frequency, ", limits 0 (excluded) and 1");
  }
  return OkStatus();
}

// RoPE's keys stand at the top, or (newer files) within rope_parameters.
Status ReadRope(const Json& config, ModelConfig& parsed) {
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
          .Positive("rope_theta", kMaxTheta, 10000.0, parsed.rope_theta));
  if (scaling != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(parsed.rope_scaling,
                            ParseRopeScaling(*scaling, parsed.head_dim));
  }
  parsed.inv_freq =
      RopeInvFreq(parsed.rope_theta, parsed.head_dim, parsed.rope_scaling);
  return CheckFrequencies(parsed);
}

Status ReadModelType(const ConfigReader& reader, std::string& model_type) {
  const Json* found = reader.Find("model_type");
  if (found == nullptr || !found->is_string()) {
    return InvalidArgument("model_type is missing or no string");
  }
  model_type = found->get<std::string>();
  if (model_type == "llama") return OkStatus();
  return InvalidArgument("model_type '", model_type,
                         "' is not supported; supported is llama");
}

Status CheckFeatures(const ConfigReader& reader) {
  SLUICE_RETURN_IF_ERROR(reader.MustBe("hidden_act", "silu"));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("attention_bias", false));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("mlp_bias", false));
  SLUICE_RETURN_IF_ERROR(reader.MustBe("partial_rotary_factor", 1.0));
  if (reader.Find("quantization_config") != nullptr) {
    return InvalidArgument(
        "quantization_config: quantised safetensors are "
        "not supported");
  }
  return OkStatus();
}

}  // namespace

StatusOr<ModelConfig> ParseModelConfig(const Json& config) {
  if (!config.is_object()) {
    return InvalidArgument("config is ", config.type_name(),
                           ", expected an object");
  }
  const ConfigReader reader(config);
  ModelConfig parsed;
  SLUICE_RETURN_IF_ERROR(ReadModelType(reader, parsed.model_type));
  SLUICE_RETURN_IF_ERROR(CheckFeatures(reader));
  SLUICE_RETURN_IF_ERROR(ReadSizes(reader, parsed));
  SLUICE_RETURN_IF_ERROR(
      reader.Positive("rms_norm_eps", 1.0, 1e-6, parsed.rms_norm_eps));
  SLUICE_RETURN_IF_ERROR(ReadRope(config, parsed));
  SLUICE_RETURN_IF_ERROR(
      reader.Bool("tie_word_embeddings", false, parsed.tie_word_embeddings));
  if (const Json* bos = reader.Find("bos_token_id")) {
    const bool valid =
        bos->is_number_integer() && *bos >= 0 && *bos < parsed.vocab_size;
    if (!valid) {
      return InvalidArgument("bos_token_id ", DumpJson(*bos),
                             " is not in the vocabulary of ",
                             parsed.vocab_size);
    }
    parsed.bos_token_id = bos->get<int32_t>();
  }
  SLUICE_ASSIGN_OR_RETURN(parsed.eos_token_ids,
                          EosTokenIds(config, parsed.vocab_size));
  return parsed;
}

uint64_t ParametersPerLayer(const ModelConfig& config) {
  const auto hidden = static_cast<uint64_t>(config.hidden_size);
  const auto q = static_cast<uint64_t>(config.q_size());
  const auto kv = static_cast<uint64_t>(config.kv_size());
  const auto mlp = static_cast<uint64_t>(config.intermediate_size);
  return hidden * (2 * q + 2 * kv + 3 * mlp + 2);
}

uint64_t ParameterCount(const ModelConfig& config) {
  const auto hidden = static_cast<uint64_t>(config.hidden_size);
  const auto vocab = static_cast<uint64_t>(config.vocab_size);
  const uint64_t tables = config.tie_word_embeddings ? 1 : 2;
  return tables * vocab * hidden + hidden +
         static_cast<uint64_t>(config.num_layers) * ParametersPerLayer(config);
}

}  // namespace sluice
