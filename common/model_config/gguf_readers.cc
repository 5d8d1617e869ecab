#include "common/model_config/gguf_readers.h"

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/gguf_read_parts.h"
#include "common/model_config/model_families.h"
#include "common/model_config/open_model.h"
#include "common/model_config/portable_math.h"

namespace sluice {
namespace {

using weights::LocatedTensor;
using weights::Quoted;

using gguf::CheckOneTheta;
using gguf::CheckPlainMixture;
using gguf::CheckWholeHeads;
using gguf::HasBias;
using gguf::MustBe;
using gguf::RotaryDim;
using gguf::SetExpertSizes;
using gguf::SetRotaryShare;
using gguf::SetWindow;
using gguf::SetWindows;

StatusOr<Json> FactorsOf(const LocatedTensor& tensor) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<float> stored,
                          ReadRopeVector(tensor));
  Json factors = Json::array();
  for (const float factor : stored) factors.push_back(ShortestDouble(factor));
  return factors;
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

Status ReadQwen3VlMoeGguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(CheckPlainMixture(gguf));
  return ReadWholeHeadsGguf(gguf, config);
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

Status ReadArceeGguf(const GgufView& gguf, Json& config) {
  config["mlp_bias"] = HasBias(gguf, "ffn_up");
  return ReadWholeHeadsGguf(gguf, config);
}

Status ReadStableLmGguf(const GgufView& gguf, Json& config) {
  config["use_parallel_residual"] =
      gguf.FindTensor("blk.0.attn_norm.weight") != nullptr &&
      gguf.FindTensor("blk.0.ffn_norm.weight") == nullptr;
  config["use_qkv_bias"] = HasBias(gguf, "attn_q");
  return SetRotaryShare(gguf, config);
}

// The converter adds 1 to all norms' weights.
Status ReadNemotronGguf(const GgufView& gguf, Json& config) {
  config["norms_add_one"] = false;
  config["attention_bias"] = HasBias(gguf, "attn_q");
  config["mlp_bias"] = HasBias(gguf, "ffn_up");
  return SetRotaryShare(gguf, config);
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
  const auto turned = config["qk_rope_head_dim"].get<int64_t>();
  if (turned < 0 || turned > key) {
    return InvalidArgument(gguf.Key(".rope.dimension_count"), " is ", turned,
                           ", limits 0 and the key length ", key);
  }
  config["qk_nope_head_dim"] = key - turned;
  config["v_head_dim"] = value;
  config["num_key_value_heads"] = config["num_attention_heads"];
  config["kv_b_split"] = gguf.FindTensor("blk.0.attn_k_b.weight") != nullptr;
  SLUICE_RETURN_IF_ERROR(gguf::DropLayersBehind(gguf, config));
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
  const double scale = ShortestDouble(multiplier * 10);
  scaling["mscale"] = scale;
  scaling["mscale_all_dim"] = scale;
  return OkStatus();
}

Status ReadIndexedGguf(const GgufView& gguf, Json& config) {
  constexpr std::string_view kTypes = ".attention.indexer.types";
  SLUICE_RETURN_IF_ERROR(ReadLatentGguf(gguf, config));
  if (!gguf.Has(kTypes)) return OkStatus();
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> own,
                          gguf::IntsOfLayers(gguf, kTypes, layers));
  Json& types = config["indexer_types"] = Json::array();
  for (const int64_t is_own : own) {
    types.push_back(is_own != 0 ? "full" : "shared");
  }
  return OkStatus();
}

Status ReadGlmDsaGguf(const GgufView& gguf, Json& config) {
  // As llama.cpp tells GLM-5.2, whose first files have no list of the layers
  // with an indexer of their own, from GLM-5.
  constexpr int64_t kContextOfSharing = 1 << 20;
  if (config["max_position_embeddings"].get<int64_t>() >= kContextOfSharing) {
    config["index_topk_freq"] = 4;
    config["index_skip_topk_offset"] = 3;
  }
  return ReadIndexedGguf(gguf, config);
}

Status ReadMinimaxM2Gguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(CheckPlainMixture(gguf));
  SLUICE_ASSIGN_OR_RETURN(config["rotary_dim"], RotaryDim(gguf, config));
  return OkStatus();
}

}  // namespace sluice
