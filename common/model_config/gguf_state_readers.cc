// What keys alone cannot say of GGUFs of models with states.
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/gguf_read_parts.h"
#include "common/model_config/gguf_readers.h"

namespace sluice {
namespace {

constexpr std::string_view kKvHeads = ".attention.head_count_kv";
constexpr std::string_view kInner = ".ssm.inner_size";
constexpr std::string_view kHeads = ".ssm.time_step_rank";

// Says that the layers' tensors are a GGUF's: rates of decay as they are, and
// rows that a checkpoint has in one tensor in several.
void SetOfGguf(Json& config) { config["of_gguf"] = true; }

// Returns the columns of one head of a mixer; `heads`: config.json's key.
StatusOr<int64_t> HeadSize(const GgufView& gguf, const Json& config,
                           const char* heads) {
  SLUICE_ASSIGN_OR_RETURN(const int64_t inner, gguf.Int(kInner));
  const auto count = config[heads].get<int64_t>();
  if (count > 0 && inner > 0 && inner % count == 0) return inner / count;
  return InvalidArgument(gguf.Key(kInner), " ", inner, " is no multiple of ",
                         gguf.Key(kHeads), " ", count);
}

// Sets the heads of keys, and returns those of each layer.
StatusOr<std::vector<int64_t>> SetKvHeads(const GgufView& gguf, Json& config) {
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  SLUICE_ASSIGN_OR_RETURN(std::vector<int64_t> heads,
                          gguf::IntsOfLayers(gguf, kKvHeads, layers));
  SLUICE_ASSIGN_OR_RETURN(const int64_t count,
                          gguf::TheOneAboveZero(gguf, kKvHeads, heads));
  config["num_key_value_heads"] =
      count > 0 ? Json(count) : config["num_attention_heads"];
  return heads;
}

// Sets the types of layers with and without attention.
Status SetTypes(const GgufView& gguf, const char* attention, const char* other,
                Json& config) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> heads,
                          SetKvHeads(gguf, config));
  Json& types = config["layer_types"] = Json::array();
  for (const int64_t count : heads) {
    types.push_back(count > 0 ? attention : other);
  }
  return OkStatus();
}

// Whether a layer has the tensor.
bool AnyHas(const GgufView& gguf, const Json& config, std::string_view name) {
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string whole = Cat("blk.", layer, ".", name);
    if (gguf.FindTensor(whole) != nullptr) return true;
    // Files without tensors have their layers' number from a stranger.
    if (gguf.FindTensor(Cat("blk.", layer, ".attn_norm.weight")) == nullptr) {
      break;
    }
  }
  return false;
}

Status ReadDeltaGguf(const GgufView& gguf, Json& config) {
  constexpr std::string_view kRecurrent = ".attention.recurrent_layers";
  SLUICE_RETURN_IF_ERROR(gguf::DropLayersBehind(gguf, config));
  SetOfGguf(config);
  // The converter adds 1 to the norms' weights but to the mixers'.
  config["norms_add_one"] = false;
  SLUICE_ASSIGN_OR_RETURN(config["linear_value_head_dim"],
                          HeadSize(gguf, config, "linear_num_value_heads"));
  if (gguf.Has(kRecurrent)) {
    SLUICE_ASSIGN_OR_RETURN(
        const std::vector<int64_t> recurrent,
        gguf::IntsOfLayers(gguf, kRecurrent,
                           config["num_hidden_layers"].get<int64_t>()));
    Json& types = config["layer_types"] = Json::array();
    for (const int64_t is : recurrent) {
      types.push_back(is != 0 ? "linear_attention" : "full_attention");
    }
  }
  return gguf::SetRotaryShare(gguf, config);
}

Status ReadDeltaMoeGguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(gguf::CheckPlainMixture(gguf));
  SLUICE_RETURN_IF_ERROR(ReadDeltaGguf(gguf, config));
  gguf::SetExpertSizes(gguf, config);
  // All layers are sparse.
  const Json size = config["moe_intermediate_size"];
  Json& dense = config["intermediate_size"];
  if (dense.is_null()) dense = size;
  return OkStatus();
}

// Sets the sizes that Mamba 2 has in the families of `heads` and `head_dim`.
Status SetMamba(const GgufView& gguf, const char* heads, const char* head_dim,
                const char* conv_bias, Json& config) {
  SetOfGguf(config);
  SLUICE_ASSIGN_OR_RETURN(config[head_dim], HeadSize(gguf, config, heads));
  config[conv_bias] = AnyHas(gguf, config, "ssm_conv1d.bias");
  return OkStatus();
}

Status ReadShortConvolutionsGguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(
      gguf::MustBe(gguf, ".attention.sliding_window", 0.0, 0.0));
  SLUICE_RETURN_IF_ERROR(SetTypes(gguf, "full_attention", "conv", config));
  return gguf::CheckWholeHeads(gguf, config);
}

}  // namespace

Status ReadQwen3NextGguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(ReadDeltaMoeGguf(gguf, config));
  // Older files have the checkpoint's tensor.
  config["linear_qkvz_apart"] = !AnyHas(gguf, config, "ssm_in.weight");
  return OkStatus();
}

Status ReadQwen35Gguf(const GgufView& gguf, Json& config) {
  return ReadDeltaGguf(gguf, config);
}

Status ReadQwen35MoeGguf(const GgufView& gguf, Json& config) {
  return ReadDeltaMoeGguf(gguf, config);
}

Status ReadLfm2Gguf(const GgufView& gguf, Json& config) {
  config["block_auto_adjust_ff_dim"] = false;
  return ReadShortConvolutionsGguf(gguf, config);
}

Status ReadLfm2MoeGguf(const GgufView& gguf, Json& config) {
  SLUICE_RETURN_IF_ERROR(ReadShortConvolutionsGguf(gguf, config));
  config["use_expert_bias"] = AnyHas(gguf, config, "exp_probs_b.bias");
  Json& scale = config["routed_scaling_factor"];
  if (scale == 0.0) scale = 1.0;
  return OkStatus();
}

Status ReadGraniteHybridGguf(const GgufView& gguf, Json& config) {
  constexpr std::string_view kTurns = ".rope.scaling.finetuned";
  SLUICE_RETURN_IF_ERROR(SetMamba(gguf, "mamba_n_heads", "mamba_d_head",
                                  "mamba_conv_bias", config));
  SLUICE_ASSIGN_OR_RETURN(const int64_t inner, gguf.Int(kInner));
  const auto hidden = config["hidden_size"].get<int64_t>();
  if (hidden < 1 || inner % hidden != 0) {
    return InvalidArgument(gguf.Key(kInner), " ", inner,
                           " is no multiple of embedding_length ", hidden);
  }
  config["mamba_expand"] = inner / hidden;
  SLUICE_RETURN_IF_ERROR(SetTypes(gguf, "attention", "mamba", config));
  bool turns = true;
  if (gguf.Has(kTurns)) {
    SLUICE_ASSIGN_OR_RETURN(turns, gguf.Bool(kTurns));
  }
  config["position_embedding_type"] = turns ? "rope" : "nope";
  SLUICE_RETURN_IF_ERROR(gguf::CheckPlainMixture(gguf));
  const Json size = config["intermediate_size"];
  const bool is_dense = config["num_local_experts"] == 0;
  Json& shared = config["shared_intermediate_size"];
  if (is_dense || shared.is_null()) shared = size;
  Json& scale = config["attention_multiplier"];
  if (scale.is_null() || scale == 0.0) {
    scale = 1.0 / std::sqrt(config["head_dim"].get<double>());
  }
  config["attention_bias"] = AnyHas(gguf, config, "attn_q.bias");
  return gguf::CheckWholeHeads(gguf, config);
}

Status ReadNemotronHGguf(const GgufView& gguf, Json& config) {
  constexpr std::string_view kWidth = ".feed_forward_length";
  SLUICE_RETURN_IF_ERROR(gguf::DropLayersBehind(gguf, config));
  SLUICE_RETURN_IF_ERROR(gguf::MustBe(gguf, ".moe_latent_size", 0.0, 0.0));
  SLUICE_RETURN_IF_ERROR(SetMamba(gguf, "mamba_num_heads", "mamba_head_dim",
                                  "use_conv_bias", config));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int64_t> heads,
                          SetKvHeads(gguf, config));
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<int64_t> widths,
      gguf::IntsOfLayers(gguf, kWidth,
                         config["num_hidden_layers"].get<int64_t>()));
  SLUICE_ASSIGN_OR_RETURN(const int64_t width,
                          gguf::TheOneAboveZero(gguf, kWidth, widths));
  config["intermediate_size"] = width > 0 ? Json(width) : config["hidden_size"];
  const bool is_sparse = config.contains("n_routed_experts");
  std::string letters;
  for (size_t i = 0; i < heads.size(); ++i) {
    letters += heads[i] > 0    ? '*'
               : widths[i] > 0 ? (is_sparse ? 'E' : '-')
                               : 'M';
  }
  config["hybrid_override_pattern"] = letters;
  return OkStatus();
}

Status ReadFalconH1Gguf(const GgufView& gguf, Json& config) {
  // The converter multiplies the weights by the multipliers, and llama.cpp's
  // norm comes behind the gate.
  SLUICE_RETURN_IF_ERROR(SetMamba(gguf, "mamba_n_heads", "mamba_d_head",
                                  "mamba_conv_bias", config));
  SLUICE_ASSIGN_OR_RETURN(config["mamba_d_ssm"], gguf.Int(kInner));
  config["mamba_rms_norm"] = AnyHas(gguf, config, "ssm_norm.weight");
  config["mamba_norm_before_gate"] = false;
  return gguf::CheckWholeHeads(gguf, config);
}

}  // namespace sluice
