// The tensors of every family but those with states (state_tables.cc).
#include "common/model_config/tensor_rows.h"

#include "common/base/check.h"
#include "common/model_config/latent_tensors.h"

namespace sluice {
namespace {

using enum RankCut;
using enum WeightPlace;
using enum StoredAs;

bool HasQkvBias(const LayerConfig& layer) { return layer.attention.qkv_bias; }
bool HasOBias(const LayerConfig& layer) { return layer.attention.o_bias; }
bool HasHeadNorms(const LayerConfig& layer) {
  return layer.attention.qk_norm == QkNorm::kHeads;
}
bool HasNormsAfterRope(const LayerConfig& layer) {
  return layer.attention.qk_norm == QkNorm::kHeadsAfterRope;
}
bool HasAllHeadsNorm(const LayerConfig& layer) {
  return layer.attention.qk_norm == QkNorm::kAllHeads;
}
bool HasOwnK(const LayerConfig& layer) { return layer.attention.kv_layer < 0; }
bool HasOwnV(const LayerConfig& layer) {
  return HasOwnK(layer) && !layer.attention.k_is_v;
}
bool HasKAsV(const LayerConfig& layer) {
  return HasOwnK(layer) && layer.attention.k_is_v;
}
bool HasKNorm(const LayerConfig& layer) {
  return HasHeadNorms(layer) && HasOwnK(layer);
}
bool HasOutputScale(const LayerConfig& layer) { return layer.output_scale; }
bool HasOwnNorms(const LayerConfig& layer) { return layer.moe.own_norms; }
bool HasLayerInput(const LayerConfig& layer) { return layer.own_input; }
bool HasSinks(const LayerConfig& layer) { return layer.attention.sinks; }
bool HasNormsAfter(const LayerConfig& layer) { return layer.norm.after; }
bool HasNormBias(const LayerConfig& layer) { return layer.norm.bias; }
bool HasMlpBias(const LayerConfig& layer) { return layer.mlp.bias; }
bool HasSharedGate(const LayerConfig& layer) { return layer.moe.shared_gate; }
bool HasCorrection(const LayerConfig& layer) { return layer.moe.correction; }

constexpr TensorRow kTop[] = {
    {"model.embed_tokens.weight", "token_embd.weight", "V H", kNone,
     kEmbedding},
    {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight",
     "V W", kNone, kPerLayerEmbedding},
    {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight",
     "W H", kNone, kPerLayerProjection},
    {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight",
     "P", kNone, kPerLayerNorm},
    {"model.norm.weight", "output_norm.weight", "H", kNone, kFinalNorm},
    {"model.norm.bias", "output_norm.bias", "H", kNone, kFinalNormBias,
     HasNormBias},
    {"lm_head.weight", "output.weight", "V H", kRows, kHead},
};

constexpr TensorRow kAttentionNormRow[] = {
    {"input_layernorm.weight", "attn_norm.weight", "H", kNone, kAttentionNorm},
    {"input_layernorm.bias", "attn_norm.bias", "H", kNone, kAttentionNormBias,
     HasNormBias},
};

constexpr TensorRow kAttention[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", "Q H", kRows, kQkv},
    {"self_attn.k_proj.weight", "attn_k.weight", "K H", kRows, kQkv, HasOwnK},
    {"self_attn.v_proj.weight", "attn_v.weight", "K H", kRows, kQkv, HasOwnV},
    {"self_attn.k_proj.weight", "", "K H", kRows, kQkv, HasKAsV, kWeight,
     /*again=*/true},
    {"self_attn.q_proj.bias", "attn_q.bias", "Q", kRows, kQkvBias, HasQkvBias},
    {"self_attn.k_proj.bias", "attn_k.bias", "K", kRows, kQkvBias, HasQkvBias},
    {"self_attn.v_proj.bias", "attn_v.bias", "K", kRows, kQkvBias, HasQkvBias},
    {"self_attn.o_proj.weight", "attn_output.weight", "H Q", kColumns, kO},
    {"self_attn.o_proj.bias", "attn_output.bias", "H", kNone, kOBias, HasOBias},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", "D", kNone, kQNorm,
     HasHeadNorms},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", "D", kNone, kKNorm,
     HasKNorm},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", "Q", kRows, kQNorm,
     HasAllHeadsNorm},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", "K", kRows, kKNorm,
     HasAllHeadsNorm},
    {"self_attn.sinks", "attn_sinks.weight", "N", kRows, kSinks, HasSinks},
};

constexpr TensorRow kFusedAttention[] = {
    {"self_attn.qkv_proj.weight", "attn_qkv.weight", "Q+2K H", kRows, kQkv},
    {"self_attn.o_proj.weight", "attn_output.weight", "H Q", kColumns, kO},
};

constexpr TensorRow kNormsAfterRope[] = {
    {"self_attn.query_layernorm.weight", "attn_q_norm.weight", "D", kNone,
     kQNorm, HasNormsAfterRope},
    {"self_attn.key_layernorm.weight", "attn_k_norm.weight", "D", kNone, kKNorm,
     HasNormsAfterRope},
};

// The norm before the MLP. Some GGUFs name it as others name the norm behind
// attention.
constexpr TensorRow kMlpNormRow[] = {
    {"post_attention_layernorm.weight", "ffn_norm.weight", "H", kNone,
     kMlpNorm},
    {"post_attention_layernorm.bias", "ffn_norm.bias", "H", kNone, kMlpNormBias,
     HasNormBias},
};
constexpr TensorRow kMlpNormAfter[] = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight", "H",
     kNone, kMlpNorm},
};

// Norms behind attention and MLP, by the names of three makers.
constexpr TensorRow kGlmNormsAfter[] = {
    {"post_self_attn_layernorm.weight", "post_attention_norm.weight", "H",
     kNone, kPostAttentionNorm, HasNormsAfter},
    {"post_mlp_layernorm.weight", "post_ffw_norm.weight", "H", kNone,
     kPostMlpNorm, HasNormsAfter},
};
constexpr TensorRow kNormsBehind[] = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight", "H",
     kNone, kPostAttentionNorm},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", "H", kNone,
     kPostMlpNorm},
};
constexpr TensorRow kGemmaMlpNorm[] = {
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight", "H", kNone,
     kMlpNorm},
};

constexpr TensorRow kApertusAttentionNorm[] = {
    {"attention_layernorm.weight", "attn_norm.weight", "H", kNone,
     kAttentionNorm},
};
constexpr TensorRow kApertusMlp[] = {
    {"feedforward_layernorm.weight", "ffn_norm.weight", "H", kNone, kMlpNorm},
    {"mlp.up_proj.weight", "ffn_up.weight", "F H", kRows, kGateUp},
    {"mlp.down_proj.weight", "ffn_down.weight", "H F", kColumns, kDown},
    {"mlp.act_fn.alpha_p", "xielu.alpha_p", "U", kNone, kXIeluPositive, nullptr,
     kLayerNumber},
    {"mlp.act_fn.alpha_n", "xielu.alpha_n", "U", kNone, kXIeluNegative, nullptr,
     kLayerNumber},
    {"mlp.act_fn.beta", "xielu.beta", "U", kNone, kXIeluBeta, nullptr,
     kLayerNumber},
    {"mlp.act_fn.eps", "xielu.eps", "U", kNone, kXIeluEps, nullptr,
     kLayerNumber},
};

constexpr TensorRow kOutputScaleRow[] = {
    {"per_layer_input_gate.weight", "inp_gate.weight", "P H", kNone,
     kInputGate},
    {"per_layer_projection.weight", "proj.weight", "H P", kNone,
     kInputProjection},
    {"post_per_layer_input_norm.weight", "post_norm.weight", "H", kNone,
     kInputNorm, HasLayerInput},
    {"layer_scalar", "layer_output_scale.weight", "U", kNone, kOutputScale,
     HasOutputScale},
};

// Gemma 4's MLP beside experts.
constexpr TensorRow kGemma4Router[] = {
    {"router.scale", "ffn_gate_inp.scale", "H", kNone, kRouterNorm},
    {"router.proj.weight", "ffn_gate_inp.weight", "E H", kNone, kRouter,
     nullptr, kF32},
    {"router.per_expert_scale", "ffn_down_exps.scale", "E", kNone,
     kExpertScale},
    {"mlp.gate_proj.weight", "ffn_gate.weight", "S H", kRows, kSharedGateUp},
    {"mlp.up_proj.weight", "ffn_up.weight", "S H", kRows, kSharedGateUp},
    {"mlp.down_proj.weight", "ffn_down.weight", "H S", kColumns, kSharedDown},
    {"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight", "H",
     kNone, kSharedPostNorm, HasOwnNorms},
    {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight", "H", kNone,
     kExpertNorm, HasOwnNorms},
    {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight", "H",
     kNone, kExpertPostNorm, HasOwnNorms},
};
constexpr TensorRow kGemma4Experts[] = {
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight", "E 2X H", kExperts,
     kExpertGateUp},
    {"experts.down_proj", "ffn_down_exps.weight", "E H X", kExperts,
     kExpertDown},
};

constexpr TensorRow kMlp[] = {
    {"mlp.gate_proj.weight", "ffn_gate.weight", "F H", kRows, kGateUp},
    {"mlp.up_proj.weight", "ffn_up.weight", "F H", kRows, kGateUp},
    {"mlp.down_proj.weight", "ffn_down.weight", "H F", kColumns, kDown},
    {"mlp.gate_proj.bias", "ffn_gate.bias", "F", kRows, kGateUpBias,
     HasMlpBias},
    {"mlp.up_proj.bias", "ffn_up.bias", "F", kRows, kGateUpBias, HasMlpBias},
    {"mlp.down_proj.bias", "ffn_down.bias", "H", kNone, kDownBias, HasMlpBias},
};

constexpr TensorRow kFusedMlp[] = {
    {"mlp.gate_up_proj.weight", "ffn_up.weight", "2F H", kRows, kGateUp},
    {"mlp.down_proj.weight", "ffn_down.weight", "H F", kColumns, kDown},
};

constexpr TensorRow kUngatedMlp[] = {
    {"mlp.up_proj.weight", "ffn_up.weight", "F H", kRows, kGateUp},
    {"mlp.down_proj.weight", "ffn_down.weight", "H F", kColumns, kDown},
    {"mlp.up_proj.bias", "ffn_up.bias", "F", kRows, kGateUpBias, HasMlpBias},
    {"mlp.down_proj.bias", "ffn_down.bias", "H", kNone, kDownBias, HasMlpBias},
};

constexpr TensorRow kStarcoder2Mlp[] = {
    {"mlp.c_fc.weight", "ffn_up.weight", "F H", kRows, kGateUp},
    {"mlp.c_proj.weight", "ffn_down.weight", "H F", kColumns, kDown},
    {"mlp.c_fc.bias", "ffn_up.bias", "F", kRows, kGateUpBias, HasMlpBias},
    {"mlp.c_proj.bias", "ffn_down.bias", "H", kNone, kDownBias, HasMlpBias},
};

constexpr TensorRow kGate[] = {
    {"mlp.gate.weight", "ffn_gate_inp.weight", "E H", kNone, kRouter, nullptr,
     kF32},
};

constexpr TensorRow kGateCorrection[] = {
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", "E", kNone,
     kCorrection, HasCorrection},
};

constexpr TensorRow kErnieCorrection[] = {
    {"mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias", "1 E",
     kNone, kCorrection},
};

constexpr TensorRow kBlockSparseGate[] = {
    {"block_sparse_moe.gate.weight", "ffn_gate_inp.weight", "E H", kNone,
     kRouter, nullptr, kF32},
    {"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias", "E", kNone,
     kCorrection, HasCorrection},
};

constexpr TensorRow kGraniteRouter[] = {
    {"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight", "E H",
     kNone, kRouter, nullptr, kF32},
};

constexpr TensorRow kHunyuanGate[] = {
    {"mlp.gate.wg.weight", "ffn_gate_inp.weight", "E H", kNone, kRouter,
     nullptr, kF32},
};

constexpr TensorRow kSharedExpert[] = {
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", "S H",
     kRows, kSharedGateUp},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", "S H", kRows,
     kSharedGateUp},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", "H S",
     kColumns, kSharedDown},
};

constexpr TensorRow kGatedSharedExpert[] = {
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", "U H", kNone,
     kSharedGate, HasSharedGate, kF32},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", "S H",
     kRows, kSharedGateUp},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", "S H", kRows,
     kSharedGateUp},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", "H S",
     kColumns, kSharedDown},
};

constexpr TensorRow kHunyuanSharedExpert[] = {
    {"mlp.shared_mlp.gate_proj.weight", "ffn_gate_shexp.weight", "S H", kRows,
     kSharedGateUp},
    {"mlp.shared_mlp.up_proj.weight", "ffn_up_shexp.weight", "S H", kRows,
     kSharedGateUp},
    {"mlp.shared_mlp.down_proj.weight", "ffn_down_shexp.weight", "H S",
     kColumns, kSharedDown},
};

constexpr TensorRow kBiasedRouter[] = {
    {"mlp.router.weight", "ffn_gate_inp.weight", "E H", kNone, kRouter, nullptr,
     kF32},
    {"mlp.router.bias", "ffn_gate_inp.bias", "E", kNone, kRouterBias},
};

constexpr TensorRow kExpertBiases[] = {
    {"mlp.experts.gate_up_proj_bias", "", "E 2X", kExperts, kExpertGateUpBias,
     nullptr, kF32},
    {"mlp.experts.down_proj_bias", "", "E H", kExperts, kExpertDownBias,
     nullptr, kF32},
};

constexpr TensorRow kApartExpertBiases[] = {
    {"mlp.experts.gate_proj_bias", "ffn_gate_exps.bias", "E X", kExperts,
     kExpertGateUpBias, nullptr, kF32},
    {"mlp.experts.up_proj_bias", "ffn_up_exps.bias", "E X", kExperts,
     kExpertGateUpBias, nullptr, kF32},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias", "E H", kExperts,
     kExpertDownBias, nullptr, kF32},
};

// Experts' matrices, by ExpertStorage.
constexpr TensorRow kSeparateExperts[] = {
    {"mlp.experts.{}.gate_proj.weight", "", "X H", kExperts, kExpertGateUp},
    {"mlp.experts.{}.up_proj.weight", "", "X H", kExperts, kExpertGateUp},
    {"mlp.experts.{}.down_proj.weight", "", "H X", kExperts, kExpertDown},
};
constexpr TensorRow kApartExperts[] = {
    {"mlp.experts.gate_proj", "ffn_gate_exps.weight", "E X H", kExperts,
     kExpertGateUp},
    {"mlp.experts.up_proj", "ffn_up_exps.weight", "E X H", kExperts,
     kExpertGateUp},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", "E H X", kExperts,
     kExpertDown},
};
constexpr TensorRow kStackedExperts[] = {
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", "E 2X H", kExperts,
     kExpertGateUp},
    {"mlp.experts.down_proj", "", "E H X", kExperts, kExpertDown},
};
constexpr TensorRow kTransposedExperts[] = {
    {"mlp.experts.gate_up_proj", "", "E H 2X", kExperts, kExpertGateUp},
    {"mlp.experts.down_proj", "", "E X H", kExperts, kExpertDown},
};

// Some families' own names.
constexpr TensorRow kBlockSparseExperts[] = {
    {"block_sparse_moe.experts.{}.w1.weight", "", "X H", kExperts,
     kExpertGateUp},
    {"block_sparse_moe.experts.{}.w3.weight", "", "X H", kExperts,
     kExpertGateUp},
    {"block_sparse_moe.experts.{}.w2.weight", "", "H X", kExperts, kExpertDown},
};
constexpr TensorRow kGraniteExperts[] = {
    {"block_sparse_moe.input_linear.weight", "", "E 2X H", kExperts,
     kExpertGateUp},
    {"block_sparse_moe.output_linear.weight", "", "E H X", kExperts,
     kExpertDown},
};

}  // namespace

std::span<const TensorRow> ExpertRowsOf(const TensorTable& table,
                                        ExpertStorage storage) {
  switch (storage) {
    case ExpertStorage::kSeparate:
      return table.separate.empty() ? kSeparateExperts : table.separate;
    case ExpertStorage::kApart:
      return table.stacks.empty() ? kApartExperts : table.stacks;
    case ExpertStorage::kStacked:
      return table.stacked.empty() ? kStackedExperts : table.stacked;
    case ExpertStorage::kTransposed:
      return kTransposedExperts;
  }
  SLUICE_CHECK(false);
}

std::span<const TensorRow> TopRowsOf(const TensorTable* table) {
  return table == nullptr || table->top.empty()
             ? std::span<const TensorRow>(kTop)
             : table->top;
}

constexpr TensorTable kLlamaTensors = {
    {kAttentionNormRow, kAttention, kMlpNormRow}, {kMlp}, {}, {}};
constexpr TensorTable kSeedOssTensors = {
    {kAttentionNormRow, kAttention, kMlpNormAfter}, {kMlp}, {}, {}};
constexpr TensorTable kPhi3Tensors = {
    {kAttentionNormRow, kFusedAttention, kMlpNormRow}, {kFusedMlp}, {}, {}};
constexpr TensorTable kGlm4Tensors = {
    {kAttentionNormRow, kAttention, kGlmNormsAfter, kMlpNormRow},
    {kFusedMlp},
    {},
    {}};
constexpr TensorTable kCohere2Tensors = {
    {kAttentionNormRow, kAttention}, {kMlp}, {}, {}};
constexpr TensorTable kStarcoder2Tensors = {
    {kAttentionNormRow, kAttention, kMlpNormRow}, {kStarcoder2Mlp}, {}, {}};
constexpr TensorTable kPostNormTensors = {
    {kAttention, kNormsBehind}, {kMlp}, {}, {}};
constexpr TensorTable kGemmaTensors = {
    {kAttentionNormRow, kAttention, kNormsBehind, kGemmaMlpNorm},
    {kMlp},
    {},
    {}};
constexpr TensorTable kGemma4Tensors = {
    {kAttentionNormRow, kAttention, kNormsBehind, kGemmaMlpNorm,
     kOutputScaleRow},
    {kMlp},
    {kGemma4Router},
    {},
    {},
    {},
    kGemma4Experts};
constexpr TensorTable kUngatedTensors = {
    {kAttentionNormRow, kAttention, kMlpNormRow}, {kUngatedMlp}, {}, {}};
constexpr TensorTable kApertusTensors = {
    {kApertusAttentionNorm, kAttention}, {kApertusMlp}, {}, {}};
constexpr TensorTable kHunyuanTensors = {
    {kAttentionNormRow, kAttention, kNormsAfterRope, kMlpNormRow},
    {kMlp},
    {},
    {}};
constexpr TensorTable kQwen3MoeTensors = {
    {kAttentionNormRow, kAttention, kMlpNormRow}, {kMlp}, {kGate}, {}};
constexpr TensorTable kQwen2MoeTensors = {
    {kAttentionNormRow, kAttention, kMlpNormRow},
    {kMlp},
    {kGate, kGatedSharedExpert},
    {}};
constexpr TensorTable kMixtralTensors = {
    {kAttentionNormRow, kAttention, kMlpNormRow},
    {},
    {kBlockSparseGate},
    {},
    {},
    kBlockSparseExperts};
constexpr TensorTable kGraniteMoeTensors = {
    {kAttentionNormRow, kAttention, kMlpNormRow},
    {},
    {kGraniteRouter},
    {},
    {},
    {},
    kGraniteExperts};
constexpr TensorTable kErnieMoeTensors = {
    {kAttentionNormRow, kAttention, kMlpNormRow},
    {kMlp},
    {kGate, kErnieCorrection, kSharedExpert},
    {}};
constexpr TensorTable kHunyuanMoeTensors = {
    {kAttentionNormRow, kAttention, kNormsAfterRope, kMlpNormRow},
    {kMlp},
    {kHunyuanGate, kHunyuanSharedExpert},
    {}};
constexpr TensorTable kDots1Tensors = {
    {kAttentionNormRow, kAttention, kMlpNormRow},
    {kMlp},
    {kGate, kGateCorrection, kSharedExpert},
    {}};
constexpr TensorTable kGlm4MoeTensors = {
    {kAttentionNormRow, kAttention, kMlpNormAfter},
    {kMlp},
    {kGate, kGateCorrection, kSharedExpert},
    {}};
constexpr TensorTable kDeepseekTensors = {
    {kAttentionNormRow, latent::kLatentAttention, latent::kIndexer,
     kMlpNormRow},
    {kMlp},
    {kGate, kGateCorrection, kSharedExpert},
    {}};
constexpr TensorTable kGptOssTensors = {
    {kAttentionNormRow, kAttention, kMlpNormAfter},
    {},
    {kBiasedRouter},
    {kExpertBiases},
    {kApartExpertBiases}};

}  // namespace sluice
