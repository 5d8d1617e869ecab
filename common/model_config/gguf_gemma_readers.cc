// What keys alone cannot say of GGUFs of Gemma.
#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/gguf_read_parts.h"
#include "common/model_config/gguf_readers.h"
#include "common/model_config/open_model.h"

namespace sluice {
namespace {

using weights::LocatedTensor;
using weights::Quoted;

// Sets Gemma's keys. The converter adds 1 to all norms' weights.
Status SetGemma(const GgufView& gguf, int64_t layers_of_27b, Json& config) {
  config["hidden_activation"] = config["hidden_act"];
  config.erase("hidden_act");
  config["norms_add_one"] = false;
  config["attention_bias"] = gguf::HasBias(gguf, "attn_q");
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
  return gguf::CheckWholeHeads(gguf, config);
}

// Sets the RoPEs of Gemma 4's layers. The divisors of layers that see all are 1
// for pairs that turn, and huge for those that stand.
Status SetProportionalRope(const GgufView& gguf, Json& config) {
  constexpr float kStands = 1e20f;
  const Json theta = config["rope_theta"];
  Json all = {{"rope_type", "proportional"},
              {"rope_theta", theta},
              {"partial_rotary_factor", 1.0}};
  if (const LocatedTensor* tensor = gguf.FindTensor(kRopeDivisors)) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<float> divisors,
                            ReadRopeVector(*tensor));
    const auto stands =
        std::find_if(divisors.begin(), divisors.end(),
                     [](float divisor) { return divisor != 1.0f; });
    const auto odd = std::find_if(stands, divisors.end(), [](float divisor) {
      return divisor < kStands;
    });
    if (odd != divisors.end()) {
      return InvalidArgument("tensor ", Quoted(kRopeDivisors), " has ", *odd,
                             " for pair ", odd - divisors.begin(),
                             "; supported are ones, and then numbers above ",
                             kStands);
    }
    // The reader multiplies by the pairs of a head and rounds down.
    const auto turn = static_cast<double>(stands - divisors.begin());
    const double pairs = config["global_head_dim"].get<double>() / 2;
    double share = turn / pairs;
    if (std::floor(share * pairs) < turn) share = std::nextafter(share, 2.0);
    all["partial_rotary_factor"] = share;
  }
  config["rope_parameters"] = {
      {"full_attention", std::move(all)},
      {"sliding_attention",
       {{"rope_type", "default"},
        {"rope_theta", config["rope_local_base_freq"]}}}};
  for (const char* key :
       {"rope_theta", "rope_scaling", "rope_local_base_freq"}) {
    config.erase(key);
  }
  return OkStatus();
}

// Sets the heads of keys of layers with windows and of the others, which have
// no tensor of values where their keys are the values.
Status SetGemma4Keys(const GgufView& gguf, Json& config) {
  constexpr std::string_view kKey = ".attention.head_count_kv";
  const Json types = config["layer_types"];
  const auto layers = static_cast<int64_t>(types.size());
  const int64_t own = layers - config["num_kv_shared_layers"].get<int64_t>();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> heads,
                          gguf::IntsOfLayers(gguf, kKey, layers));
  Json windowed;
  Json full;
  bool k_is_v = false;
  for (int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<size_t>(i);
    const bool sees_all = types[at] == "full_attention" || i + 1 == layers;
    Json& count = sees_all ? full : windowed;
    if (!count.is_null() && count != heads[at]) {
      return InvalidArgument(gguf.Key(kKey), " is ", heads[at], " for layer ",
                             i, " and ", count.get<int64_t>(),
                             " for others of its kind");
    }
    count = heads[at];
    const auto has = [&](const char* name) {
      return gguf.FindTensor(Cat("blk.", i, ".", name)) != nullptr;
    };
    if (sees_all && i < own && has("attn_k.weight")) {
      k_is_v = k_is_v || !has("attn_v.weight");
    }
  }
  if (windowed.is_null()) windowed = full;
  config["num_key_value_heads"] = windowed;
  config["num_global_key_value_heads"] = full;
  config["attention_k_eq_v"] = k_is_v;
  if (k_is_v || full.is_null() || full == windowed) return OkStatus();
  return InvalidArgument(gguf.Key(kKey), " is ", full.get<int64_t>(),
                         " for layers that see all and ",
                         windowed.get<int64_t>(),
                         " for others, and both have values of their own");
}

// The layers that read others' keys may have an MLP of twice the width.
Status SetGemma4Widths(const GgufView& gguf, Json& config) {
  constexpr std::string_view kKey = ".feed_forward_length";
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  const int64_t own = layers - config["num_kv_shared_layers"].get<int64_t>();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> widths,
                          gguf::IntsOfLayers(gguf, kKey, layers));
  if (widths.empty() || own < 1) {
    return InvalidArgument(gguf.Key(".attention.shared_kv_layers"), " leaves ",
                           own, " of ", layers, " layers");
  }
  const bool is_wide = widths.back() != widths.front();
  for (int64_t i = 0; i < layers; ++i) {
    const int64_t wanted = widths.front() * (is_wide && i >= own ? 2 : 1);
    const int64_t width = widths[static_cast<size_t>(i)];
    if (width == wanted) continue;
    return InvalidArgument(gguf.Key(kKey), " is ", width, " for layer ", i,
                           ", supported here is ", wanted);
  }
  config["intermediate_size"] = widths.front();
  config["use_double_wide_mlp"] = is_wide;
  return OkStatus();
}

}  // namespace

Status ReadGemma1Gguf(const GgufView& gguf, Json& config) {
  config["hidden_activation"] = config["hidden_act"];
  config.erase("hidden_act");
  config["norms_add_one"] = false;
  return ReadWholeHeadsGguf(gguf, config);
}

Status ReadGemma2Gguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(gguf::CheckOneTheta(gguf, config));
  SLUICE_RETURN_IF_ERROR(gguf::SetWindows(gguf, 4096, 2, config));
  return SetGemma(gguf, 46, config);
}

Status ReadGemma3Gguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(gguf::SetWindows(gguf, 0, 6, config));
  return SetGemma(gguf, 62, config);
}

Status ReadGemma4Gguf(const GgufView& gguf, Json& config) {
  const std::pair<const char*, const char*> sizes[] = {
      {".attention.value_length", "global_head_dim"},
      {".attention.value_length_swa", "head_dim"},
      {".rope.dimension_count", "global_head_dim"},
      {".rope.dimension_count_swa", "head_dim"}};
  for (const auto& [key, size] : sizes) {
    const auto built = config[size].get<double>();
    SLUICE_RETURN_IF_ERROR(gguf::MustBe(gguf, key, built, built));
  }
  config["hidden_activation"] = config["hidden_act"];
  config.erase("hidden_act");
  Json& cap = config["final_logit_softcapping"];
  if (cap == 0.0) cap = nullptr;
  config["vocab_size_per_layer_input"] = config["vocab_size"];
  config["enable_moe_block"] = config["num_experts"] != 0;
  config["attention_bias"] = gguf::HasBias(gguf, "attn_q");
  SLUICE_RETURN_IF_ERROR(gguf::CheckPlainMixture(gguf));
  SLUICE_RETURN_IF_ERROR(gguf::SetWindows(gguf, 0, 6, config));
  SLUICE_RETURN_IF_ERROR(SetGemma4Widths(gguf, config));
  SLUICE_RETURN_IF_ERROR(SetGemma4Keys(gguf, config));
  return SetProportionalRope(gguf, config);
}

}  // namespace sluice
