#include "common/model_config/gguf_readers.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/core/kv_groups.h"
#include "common/model_config/open_model.h"
#include "common/model_config/portable_math.h"

namespace sluice {
namespace {

using weights::LocatedTensor;
using weights::Quoted;

constexpr std::string_view kWindowKey = ".attention.sliding_window";
constexpr std::string_view kPatternKey = ".attention.sliding_window_pattern";

bool HasBias(const GgufView& gguf, std::string_view name) {
  return gguf.FindTensor(Cat("blk.0.", name, ".bias")) != nullptr;
}

// Checks that a number is one of two, if the file has it.
Status MustBe(const GgufView& gguf, std::string_view key, double built,
              double none) {
  if (!gguf.Has(key)) return OkStatus();
  const weights::GgufValue& value = *gguf.metadata().Find(gguf.Key(key));
  double found = 0.0;
  if (const auto* integer = std::get_if<int64_t>(&value.value)) {
    found = static_cast<double>(*integer);
  } else {
    SLUICE_ASSIGN_OR_RETURN(found, gguf.Float(key));
  }
  if (found == built || found == none) return OkStatus();
  return InvalidArgument(gguf.Key(key), " is ", found,
                         ", supported for this architecture is ", built);
}

// Returns how many dimensions of a head turn.
StatusOr<int64_t> RotaryDim(const GgufView& gguf, const Json& config) {
  constexpr std::string_view kKey = ".rope.dimension_count";
  const auto head_dim = config["head_dim"].get<int64_t>();
  if (!gguf.Has(kKey)) return head_dim;
  SLUICE_ASSIGN_OR_RETURN(const int64_t rotary, gguf.Int(kKey));
  if (rotary >= 2 && rotary <= head_dim) return rotary;
  return InvalidArgument(gguf.Key(kKey), " is ", rotary,
                         ", limits 2 and head_dim ", head_dim);
}

Status CheckWholeHeads(const GgufView& gguf, const Json& config) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t rotary, RotaryDim(gguf, config));
  if (rotary == config["head_dim"].get<int64_t>()) return OkStatus();
  return InvalidArgument(gguf.Key(".rope.dimension_count"), " is ", rotary,
                         ", head_dim ", config["head_dim"].get<int64_t>(),
                         "; a part of a head is not supported");
}

// Sets the share of a head that turns: the reader multiplies and rounds down.
Status SetRotaryShare(const GgufView& gguf, Json& config) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t rotary, RotaryDim(gguf, config));
  const auto head_dim = config["head_dim"].get<double>();
  double share = static_cast<double>(rotary) / head_dim;
  if (static_cast<int64_t>(head_dim * share) < rotary) {
    share = std::nextafter(share, std::numeric_limits<double>::infinity());
  }
  config["partial_rotary_factor"] = share;
  return OkStatus();
}

// Checks what is 1, or absent, where a family's mixture is fixed.
Status CheckPlainMixture(const GgufView& gguf) {
  SLUICE_RETURN_IF_ERROR(MustBe(gguf, ".expert_weights_scale", 1.0, 0.0));
  return MustBe(gguf, ".expert_group_count", 1.0, 0.0);
}

// Reads the window; 0: none.
StatusOr<int64_t> WindowOf(const GgufView& gguf, int64_t absent) {
  if (!gguf.Has(kWindowKey)) return absent;
  SLUICE_ASSIGN_OR_RETURN(const int64_t window, gguf.Int(kWindowKey));
  if (window >= 0 && window <= kMaxKvWindow) return window;
  return InvalidArgument(gguf.Key(kWindowKey), " is ", window,
                         ", limits 0 and ", kMaxKvWindow);
}

// Sets the window of every layer.
Status SetWindow(const GgufView& gguf, Json& config) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t window, WindowOf(gguf, 0));
  config["sliding_window"] = window > 0 ? Json(window) : Json();
  return OkStatus();
}

// Returns which layers have windows: the file's list, or all but every n-th.
StatusOr<std::vector<int64_t>> PatternOf(const GgufView& gguf, int64_t period,
                                         int64_t layers) {
  if (gguf.Has(kPatternKey)) {
    auto list = gguf.metadata().Ints(gguf.Key(kPatternKey));
    if (list.ok() && std::ssize(*list) >= layers) return *list;
    if (list.ok()) {
      return InvalidArgument(gguf.Key(kPatternKey), " has ", list->size(),
                             " layers of ", layers);
    }
    SLUICE_ASSIGN_OR_RETURN(period, gguf.Int(kPatternKey));
    if (period < 0) {
      return InvalidArgument(gguf.Key(kPatternKey), " is ", period,
                             ", limit 0");
    }
  }
  std::vector<int64_t> windowed;
  for (int64_t i = 0; i < layers; ++i) {
    windowed.push_back(period == 0 || (i + 1) % period != 0 ? 1 : 0);
  }
  return windowed;
}

// Sets the window and the layers that have it.
Status SetWindows(const GgufView& gguf, int64_t absent, int64_t period,
                  Json& config) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t window, WindowOf(gguf, absent));
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> windowed,
                          PatternOf(gguf, period, layers));
  config["sliding_window"] = window > 0 ? Json(window) : Json();
  Json& types = config["layer_types"] = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    const bool has = window > 0 && windowed[static_cast<size_t>(i)] != 0;
    types.push_back(has ? "sliding_attention" : "full_attention");
  }
  return OkStatus();
}

// Checks that layers with windows have the theta of the rest.
Status CheckOneTheta(const GgufView& gguf, const Json& config) {
  constexpr std::string_view kKey = ".rope.freq_base_swa";
  if (!gguf.Has(kKey)) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const double theta, gguf.Float(kKey));
  const auto all = config["rope_theta"].get<double>();
  if (theta == all) return OkStatus();
  return InvalidArgument(gguf.Key(kKey), " is ", theta,
                         ", supported for this architecture is freq_base ",
                         all);
}

// Sets the sizes that the experts' tensors have, where the file has no key.
void SetExpertSizes(const GgufView& gguf, Json& config) {
  const std::pair<const char*, const char*> sizes[] = {
      {"moe_intermediate_size", "blk.0.ffn_gate_exps.weight"},
      {"shared_expert_intermediate_size", "blk.0.ffn_gate_shexp.weight"}};
  for (const auto& [key, name] : sizes) {
    const LocatedTensor* tensor = gguf.FindTensor(name);
    if (!config[key].is_null() || tensor == nullptr) continue;
    const std::vector<int64_t>& shape = tensor->info.shape;
    if (shape.size() >= 2) config[key] = shape[shape.size() - 2];
  }
}

StatusOr<Json> FactorsOf(const LocatedTensor& tensor) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<float> stored,
                          ReadRopeVector(tensor));
  Json factors = Json::array();
  for (const float factor : stored) factors.push_back(ShortestDouble(factor));
  return factors;
}

// Sets Gemma's keys. The converter adds 1 to all norms' weights.
Status SetGemma(const GgufView& gguf, int64_t layers_of_27b, Json& config) {
  config["hidden_activation"] = config["hidden_act"];
  config.erase("hidden_act");
  config["norms_add_one"] = false;
  config["attention_bias"] = HasBias(gguf, "attn_q");
  // The largest model's is no key, and not the size of a head.
  const auto heads = config["num_attention_heads"].get<int64_t>();
  const bool is_27b = config["num_hidden_layers"] == layers_of_27b && heads > 0;
  config["query_pre_attn_scalar"] =
      is_27b ? Json(config["hidden_size"].get<int64_t>() / heads)
             : config["head_dim"];
  for (const char* key :
       {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (config.contains(key) && config[key] == 0.0) config[key] = nullptr;
  }
  return CheckWholeHeads(gguf, config);
}

}  // namespace

Status ReadWholeHeadsGguf(const GgufView& gguf, Json& config) {
  config["attention_bias"] = HasBias(gguf, "attn_q");
  return CheckWholeHeads(gguf, config);
}

Status ReadWindowsGguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(SetWindow(gguf, config));
  return CheckWholeHeads(gguf, config);
}

Status ReadLlamaGguf(const GgufView& gguf, Json& config) {
  config["attention_bias"] = HasBias(gguf, "attn_q") &&
                             HasBias(gguf, "attn_k") && HasBias(gguf, "attn_v");
  config["mlp_bias"] = HasBias(gguf, "ffn_up");
  return OkStatus();
}

Status ReadMixtralGguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(CheckPlainMixture(gguf));
  return SetWindow(gguf, config);
}

Status ReadMinistral3Gguf(const GgufView& gguf, Json& config) {
  constexpr std::string_view kGrowth = ".attention.temperature_scale";
  constexpr std::string_view kMultiplier = ".rope.scaling.yarn_log_multiplier";
  SLUICE_RETURN_IF_ERROR(CheckWholeHeads(gguf, config));
  SLUICE_RETURN_IF_ERROR(MustBe(gguf, ".expert_count", 0.0, 0.0));
  Json& scaling = config["rope_scaling"];
  const bool is_yarn =
      scaling.is_object() && scaling.value("rope_type", "") == "yarn";
  if (is_yarn && gguf.Has(kMultiplier)) {
    SLUICE_ASSIGN_OR_RETURN(const double multiplier, gguf.Float(kMultiplier));
    if (multiplier != 0.0) {
      scaling["mscale"] = 1.0;
      scaling["mscale_all_dim"] = multiplier;
    }
  }
  if (!gguf.Has(kGrowth)) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const double beta, gguf.Float(kGrowth));
  if (beta == 0.0) return OkStatus();
  if (scaling.is_null()) scaling = {{"rope_type", "default"}};
  scaling["llama_4_scaling_beta"] = beta;
  if (!scaling.contains("original_max_position_embeddings")) {
    scaling["original_max_position_embeddings"] =
        config["max_position_embeddings"];
  }
  return OkStatus();
}

Status ReadQwen2Gguf(const GgufView& gguf, Json& config) {
  return CheckWholeHeads(gguf, config);
}

Status ReadQwen2MoeGguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(CheckPlainMixture(gguf));
  SetExpertSizes(gguf, config);
  config["norm_topk_prob"] = false;
  return CheckWholeHeads(gguf, config);
}

Status ReadSeedOssGguf(const GgufView& gguf, Json& config) {
  config["attention_out_bias"] = HasBias(gguf, "attn_output");
  config["mlp_bias"] = HasBias(gguf, "ffn_up");
  return ReadWholeHeadsGguf(gguf, config);
}

Status ReadSmolLm3Gguf(const GgufView& gguf, Json& config) {
  config["mlp_bias"] = HasBias(gguf, "ffn_up");
  return ReadWholeHeadsGguf(gguf, config);
}

Status ReadGraniteGguf(const GgufView& gguf, Json& config) {
  // False says that nothing turns.
  constexpr std::string_view kTurns = ".rope.scaling.finetuned";
  if (gguf.Has(kTurns)) {
    SLUICE_ASSIGN_OR_RETURN(const bool turns, gguf.Bool(kTurns));
    if (!turns) {
      return InvalidArgument(gguf.Key(kTurns),
                             " is false (no RoPE), supported is true");
    }
  }
  SLUICE_RETURN_IF_ERROR(
      MustBe(gguf, ".expert_shared_feed_forward_length", 0.0, 0.0));
  Json& scale = config["attention_multiplier"];
  if (scale.is_null() || scale == 0.0) {
    scale = 1.0 / std::sqrt(config["head_dim"].get<double>());
  }
  config["mlp_bias"] = HasBias(gguf, "ffn_up");
  return ReadWholeHeadsGguf(gguf, config);
}

Status ReadGraniteMoeGguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(CheckPlainMixture(gguf));
  return ReadGraniteGguf(gguf, config);
}

Status ReadErnieGguf(const GgufView& gguf, Json& config) {
  config["use_bias"] = HasBias(gguf, "attn_q");
  return CheckWholeHeads(gguf, config);
}

Status ReadErnieMoeGguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(CheckPlainMixture(gguf));
  return ReadErnieGguf(gguf, config);
}

Status ReadHunyuanMoeGguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(CheckPlainMixture(gguf));
  const auto size = config["intermediate_size"].get<double>();
  for (const char* key :
       {".expert_feed_forward_length", ".expert_shared_feed_forward_length"}) {
    SLUICE_RETURN_IF_ERROR(MustBe(gguf, key, size, size));
  }
  return ReadWholeHeadsGguf(gguf, config);
}

Status ReadGlmGguf(const GgufView& gguf, Json& config) {
  config["attention_bias"] =
      HasBias(gguf, "attn_q") || HasBias(gguf, "attn_qkv");
  return SetRotaryShare(gguf, config);
}

// Two vectors of divisors are of short and of long contexts.
Status ReadPhi3Gguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(SetWindow(gguf, config));
  SLUICE_RETURN_IF_ERROR(SetRotaryShare(gguf, config));
  const LocatedTensor* brief = gguf.FindTensor(kShortRopeDivisors);
  const LocatedTensor* wide = gguf.FindTensor(kLongRopeDivisors);
  if (brief == nullptr && wide == nullptr) return OkStatus();
  if (brief == nullptr || wide == nullptr) {
    return InvalidArgument(
        "tensor ",
        Quoted(brief == nullptr ? kShortRopeDivisors : kLongRopeDivisors),
        " is missing beside the other of two");
  }
  constexpr std::string_view kOriginal =
      ".rope.scaling.original_context_length";
  SLUICE_ASSIGN_OR_RETURN(const int64_t original, gguf.Int(kOriginal));
  const auto all = config["max_position_embeddings"].get<double>();
  if (original < 2) {
    return InvalidArgument(gguf.Key(kOriginal), " is ", original, ", limit 2");
  }
  config["original_max_position_embeddings"] = original;
  Json scaling = {{"rope_type", "longrope"}};
  SLUICE_ASSIGN_OR_RETURN(scaling["short_factor"], FactorsOf(*brief));
  SLUICE_ASSIGN_OR_RETURN(scaling["long_factor"], FactorsOf(*wide));
  constexpr std::string_view kFactor = ".rope.scaling.attn_factor";
  if (gguf.Has(kFactor)) {
    SLUICE_ASSIGN_OR_RETURN(const double factor, gguf.Float(kFactor));
    // The usual one is told by the lengths, more exactly.
    const double times = all / static_cast<double>(original);
    const double usual =
        times > 1.0 ? std::sqrt(1.0 + OwnLog(times) /
                                          OwnLog(static_cast<double>(original)))
                    : 1.0;
    if (std::abs(factor - usual) > 1e-6) scaling["attention_factor"] = factor;
  }
  config["rope_scaling"] = std::move(scaling);
  return OkStatus();
}

Status ReadStarcoder2Gguf(const GgufView& gguf, Json& config) {
  config["use_bias"] = HasBias(gguf, "attn_q");
  return ReadWindowsGguf(gguf, config);
}

Status ReadCohere2Gguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(CheckOneTheta(gguf, config));
  SLUICE_RETURN_IF_ERROR(SetWindows(gguf, 0, 4, config));
  return ReadWholeHeadsGguf(gguf, config);
}

Status ReadOlmo3Gguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(CheckOneTheta(gguf, config));
  SLUICE_RETURN_IF_ERROR(SetWindows(gguf, 0, 4, config));
  return ReadWholeHeadsGguf(gguf, config);
}

Status ReadOlmoeGguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(CheckPlainMixture(gguf));
  config["norm_topk_prob"] = false;
  if (config["clip_qkv"] == 0.0) config["clip_qkv"] = nullptr;
  return ReadWholeHeadsGguf(gguf, config);
}

Status ReadExaone4Gguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(CheckOneTheta(gguf, config));
  // As llama.cpp reads the 32B, which has windows.
  const int64_t absent = config["num_hidden_layers"] == 64 ? 4096 : 0;
  SLUICE_RETURN_IF_ERROR(SetWindows(gguf, absent, 4, config));
  return CheckWholeHeads(gguf, config);
}

Status ReadGemma2Gguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(CheckOneTheta(gguf, config));
  SLUICE_RETURN_IF_ERROR(SetWindows(gguf, 4096, 2, config));
  return SetGemma(gguf, 46, config);
}

Status ReadGemma3Gguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(SetWindows(gguf, 0, 6, config));
  return SetGemma(gguf, 62, config);
}

Status ReadLatentGguf(const GgufView& gguf, Json& config) {
  // Newer files have the sizes of the cache's row in the usual keys.
  const bool is_new = gguf.Has(".attention.key_length_mla");
  SLUICE_ASSIGN_OR_RETURN(
      const int64_t key,
      gguf.Int(is_new ? ".attention.key_length_mla" : ".attention.key_length"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t value,
                          gguf.Int(is_new ? ".attention.value_length_mla"
                                          : ".attention.value_length"));
  for (const int64_t size : {key, value}) {
    if (size < 0 || size > kMaxHeadDim) {
      return InvalidArgument("the GGUF's key_length or value_length is ", size,
                             ", limits 0 and ", kMaxHeadDim);
    }
  }
  config["qk_nope_head_dim"] = key - config["qk_rope_head_dim"].get<int64_t>();
  config["v_head_dim"] = value;
  config["num_key_value_heads"] = config["num_attention_heads"];
  config["kv_b_split"] = gguf.FindTensor("blk.0.attn_k_b.weight") != nullptr;
  // block_count includes the layers behind the last.
  int64_t behind = 0;
  if (gguf.Has(".nextn_predict_layers")) {
    SLUICE_ASSIGN_OR_RETURN(behind, gguf.Int(".nextn_predict_layers"));
  }
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  if (behind < 0 || layers < behind) {
    return InvalidArgument(gguf.Key(".nextn_predict_layers"), " is ", behind,
                           " of a block_count of ", layers);
  }
  config["num_hidden_layers"] = layers - behind;
  config["num_nextn_predict_layers"] = behind;
  if (config["model_type"] == "deepseek_v2" && config["n_group"] != 1) {
    config["topk_method"] = "group_limited_greedy";
  }
  // A tenth of the factor of the scores' logarithm.
  constexpr std::string_view kMultiplier = ".rope.scaling.yarn_log_multiplier";
  Json& scaling = config["rope_scaling"];
  if (!scaling.is_object() || scaling.value("rope_type", "") != "yarn" ||
      !gguf.Has(kMultiplier)) {
    return OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(const double multiplier, gguf.Float(kMultiplier));
  if (multiplier == 0.0) return OkStatus();
  scaling["mscale"] = scaling["mscale_all_dim"] =
      ShortestDouble(multiplier * 10);
  return OkStatus();
}

Status ReadMinimaxM2Gguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(CheckPlainMixture(gguf));
  SLUICE_ASSIGN_OR_RETURN(config["rotary_dim"], RotaryDim(gguf, config));
  return OkStatus();
}

}  // namespace sluice
