// The tensors of models with states.
#include "common/model_config/tensor_table.h"

namespace sluice {
namespace {

using enum RankCut;
using enum WeightPlace;
using enum StoredAs;

bool HasBiasOfQkv(const LayerConfig& layer) { return layer.attention.qkv_bias; }
bool HasBiasOfO(const LayerConfig& layer) { return layer.attention.o_bias; }
bool HasExpertBias(const LayerConfig& layer) { return layer.moe.correction; }
bool HasAttention(const LayerConfig& layer) { return layer.attention.present; }
bool HasState(const LayerConfig& layer) { return layer.state.present(); }
// A state's rates of decay, or their logarithms.
bool HasRate(const LayerConfig& layer) { return layer.of_gguf; }
bool HasLogRate(const LayerConfig& layer) { return !layer.of_gguf; }
// Gate and up in two tensors, or in one.
bool HasGateApart(const LayerConfig& layer) { return layer.of_gguf; }
bool HasGateUp(const LayerConfig& layer) { return !layer.of_gguf; }
bool HasQkvz(const LayerConfig& layer) { return !layer.state.qkvz_apart; }
bool HasQkvApart(const LayerConfig& layer) { return layer.state.qkvz_apart; }
bool HasStateBias(const LayerConfig& layer) { return layer.state.conv_bias; }
bool HasStateNorm(const LayerConfig& layer) {
  return layer.state.mixer.norm_groups > 0;
}
bool HasMixer(const LayerConfig& layer) {
  return HasAttention(layer) || HasState(layer);
}
bool HasNoMixer(const LayerConfig& layer) { return !HasMixer(layer); }

// The names of Llama's layers, of Qwen2's mixtures and of Granite's.
constexpr TensorRow kFirstNorm[] = {
    {"input_layernorm.weight", "attn_norm.weight", "H", kNone, kAttentionNorm},
};
constexpr TensorRow kPlainMlpNorm[] = {
    {"post_attention_layernorm.weight", "ffn_norm.weight", "H", kNone,
     kMlpNorm},
};
// Qwen's, which their GGUFs name as others name the norm behind attention.
constexpr TensorRow kQwenMlpNorm[] = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight", "H",
     kNone, kMlpNorm},
};
constexpr TensorRow kPlainAttention[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", "Q H", kRows, kQkv},
    {"self_attn.k_proj.weight", "attn_k.weight", "K H", kRows, kQkv},
    {"self_attn.v_proj.weight", "attn_v.weight", "K H", kRows, kQkv},
    {"self_attn.q_proj.bias", "attn_q.bias", "Q", kRows, kQkvBias,
     HasBiasOfQkv},
    {"self_attn.k_proj.bias", "attn_k.bias", "K", kRows, kQkvBias,
     HasBiasOfQkv},
    {"self_attn.v_proj.bias", "attn_v.bias", "K", kRows, kQkvBias,
     HasBiasOfQkv},
    {"self_attn.o_proj.weight", "attn_output.weight", "H Q", kColumns, kO},
    {"self_attn.o_proj.bias", "attn_output.bias", "H", kNone, kOBias,
     HasBiasOfO},
};
constexpr TensorRow kPlainMlp[] = {
    {"mlp.gate_proj.weight", "ffn_gate.weight", "F H", kRows, kGateUp},
    {"mlp.up_proj.weight", "ffn_up.weight", "F H", kRows, kGateUp},
    {"mlp.down_proj.weight", "ffn_down.weight", "H F", kColumns, kDown},
};
constexpr TensorRow kGatedMixture[] = {
    {"mlp.gate.weight", "ffn_gate_inp.weight", "E H", kNone, kRouter, nullptr,
     kF32},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", "U H", kNone,
     kSharedGate, nullptr, kF32},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", "S H",
     kRows, kSharedGateUp},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", "S H", kRows,
     kSharedGateUp},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", "H S",
     kColumns, kSharedDown},
};
constexpr TensorRow kHybridRouter[] = {
    {"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight", "E H",
     kNone, kRouter, nullptr, kF32},
};
constexpr TensorRow kHybridExperts[] = {
    {"block_sparse_moe.input_linear.weight", "", "E 2X H", kExperts,
     kExpertGateUp},
    {"block_sparse_moe.output_linear.weight", "", "E H X", kExperts,
     kExpertDown},
};

// Short convolutions, and the names of LFM2.
constexpr TensorRow kLfm2Top[] = {
    {"model.embed_tokens.weight", "token_embd.weight", "V H", kNone,
     kEmbedding},
    {"model.embedding_norm.weight", "token_embd_norm.weight", "H", kNone,
     kFinalNorm},
    {"lm_head.weight", "output.weight", "V H", kRows, kHead},
};
constexpr TensorRow kLfm2Norms[] = {
    {"operator_norm.weight", "attn_norm.weight", "H", kNone, kAttentionNorm},
    {"ffn_norm.weight", "ffn_norm.weight", "H", kNone, kMlpNorm},
};
constexpr TensorRow kLfm2Attention[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", "Q H", kRows, kQkv},
    {"self_attn.k_proj.weight", "attn_k.weight", "K H", kRows, kQkv},
    {"self_attn.v_proj.weight", "attn_v.weight", "K H", kRows, kQkv},
    {"self_attn.out_proj.weight", "attn_output.weight", "H Q", kColumns, kO},
    {"self_attn.q_layernorm.weight", "attn_q_norm.weight", "D", kNone, kQNorm,
     HasAttention},
    {"self_attn.k_layernorm.weight", "attn_k_norm.weight", "D", kNone, kKNorm,
     HasAttention},
};
constexpr TensorRow kShortConvolution[] = {
    {"conv.in_proj.weight", "shortconv.in_proj.weight", "3C H", kRows,
     kStateIn},
    {"conv.conv.weight", "shortconv.conv.weight", "C U L", kRows, kStateTaps,
     HasState, kTaps},
    {"conv.out_proj.weight", "shortconv.out_proj.weight", "H C", kColumns,
     kStateOut},
};
constexpr TensorRow kLfm2Mlp[] = {
    {"feed_forward.w1.weight", "ffn_gate.weight", "F H", kRows, kGateUp},
    {"feed_forward.w3.weight", "ffn_up.weight", "F H", kRows, kGateUp},
    {"feed_forward.w2.weight", "ffn_down.weight", "H F", kColumns, kDown},
};
constexpr TensorRow kLfm2Router[] = {
    {"feed_forward.gate.weight", "ffn_gate_inp.weight", "E H", kNone, kRouter,
     nullptr, kF32},
    {"feed_forward.expert_bias", "exp_probs_b.bias", "E", kNone, kCorrection,
     HasExpertBias},
};
constexpr TensorRow kLfm2Experts[] = {
    {"feed_forward.experts.{}.w1.weight", "", "X H", kExperts, kExpertGateUp},
    {"feed_forward.experts.{}.w3.weight", "", "X H", kExperts, kExpertGateUp},
    {"feed_forward.experts.{}.w2.weight", "", "H X", kExperts, kExpertDown},
};

// Gated attention: each head's q, then its gate.
constexpr TensorRow kGatedAttention[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", "2Q H", kGroups, kQkv},
    {"self_attn.k_proj.weight", "attn_k.weight", "K H", kRows, kQkv},
    {"self_attn.v_proj.weight", "attn_v.weight", "K H", kRows, kQkv},
    {"self_attn.o_proj.weight", "attn_output.weight", "H Q", kColumns, kO},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", "D", kNone, kQNorm,
     HasAttention},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", "D", kNone, kKNorm,
     HasAttention},
};

// The gated delta rule. Qwen3-Next stores its rows by key heads, but for q, k,
// v and z of its newer GGUFs.
constexpr TensorRow kDeltaByHeads[] = {
    {"linear_attn.in_proj_qkvz.weight", "ssm_in.weight", "2J+2Z H", kGroups,
     kStateIn, HasQkvz},
    {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight", "2J+Z H", kRows,
     kStateIn, HasQkvApart},
    {"linear_attn.in_proj_z.weight", "attn_gate.weight", "Z H", kRows, kStateIn,
     HasQkvApart},
    {"linear_attn.in_proj_ba.weight", "ssm_ba.weight", "2T H", kGroups,
     kStateIn},
};
constexpr TensorRow kDeltaApart[] = {
    {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight", "2J+Z H", kRows,
     kStateIn},
    {"linear_attn.in_proj_z.weight", "attn_gate.weight", "Z H", kRows,
     kStateIn},
    {"linear_attn.in_proj_b.weight", "ssm_beta.weight", "T H", kRows, kStateIn},
    {"linear_attn.in_proj_a.weight", "ssm_alpha.weight", "T H", kRows,
     kStateIn},
};
constexpr TensorRow kDelta[] = {
    {"linear_attn.conv1d.weight", "ssm_conv1d.weight", "2J+Z U L", kRows,
     kStateTaps, HasState, kTaps},
    {"linear_attn.A_log", "", "T", kRows, kStateLogRate, HasLogRate},
    {"linear_attn.A", "ssm_a", "T", kRows, kStateRate, HasRate},
    {"linear_attn.dt_bias", "ssm_dt.bias", "T", kRows, kStateTimeBias},
    {"linear_attn.norm.weight", "ssm_norm.weight", "M", kNone, kStateNorm},
    {"linear_attn.out_proj.weight", "ssm_out.weight", "H Z", kColumns,
     kStateOut},
};

// Mamba 2.
constexpr TensorRow kMamba[] = {
    {"mamba.in_proj.weight", "ssm_in.weight", "2Z+2J+T H", kRows, kStateIn},
    {"mamba.conv1d.weight", "ssm_conv1d.weight", "Z+2J U L", kRows, kStateTaps,
     HasState, kTaps},
    {"mamba.conv1d.bias", "ssm_conv1d.bias", "Z+2J", kRows, kStateBias,
     HasStateBias},
    {"mamba.A_log", "", "T", kRows, kStateLogRate, HasLogRate},
    {"mamba.A", "ssm_a", "T", kRows, kStateRate, HasRate},
    {"mamba.D", "ssm_d", "T", kRows, kStateSkip},
    {"mamba.dt_bias", "ssm_dt.bias", "T", kRows, kStateTimeBias},
    {"mamba.norm.weight", "ssm_norm.weight", "Z", kRows, kStateNorm,
     HasStateNorm},
    {"mamba.out_proj.weight", "ssm_out.weight", "H Z", kColumns, kStateOut},
};

constexpr TensorRow kGraniteSharedMlp[] = {
    {"shared_mlp.input_linear.weight", "", "2F H", kRows, kGateUp, HasGateUp},
    {"shared_mlp.gate_proj.weight", "ffn_gate.weight", "F H", kRows, kGateUp,
     HasGateApart},
    {"shared_mlp.up_proj.weight", "ffn_up.weight", "F H", kRows, kGateUp,
     HasGateApart},
    {"shared_mlp.output_linear.weight", "ffn_down.weight", "H F", kColumns,
     kDown},
};
constexpr TensorRow kGraniteSharedExpert[] = {
    {"shared_mlp.input_linear.weight", "", "2S H", kRows, kSharedGateUp,
     HasGateUp},
    {"shared_mlp.gate_proj.weight", "ffn_gate_shexp.weight", "S H", kRows,
     kSharedGateUp, HasGateApart},
    {"shared_mlp.up_proj.weight", "ffn_up_shexp.weight", "S H", kRows,
     kSharedGateUp, HasGateApart},
    {"shared_mlp.output_linear.weight", "ffn_down_shexp.weight", "H S",
     kColumns, kSharedDown},
};

// Nemotron-H: one mixer, MLP or mixture per layer.
constexpr TensorRow kNemotronTop[] = {
    {"model.embeddings.weight", "token_embd.weight", "V H", kNone, kEmbedding},
    {"model.norm_f.weight", "output_norm.weight", "H", kNone, kFinalNorm},
    {"lm_head.weight", "output.weight", "V H", kRows, kHead},
};
constexpr TensorRow kNemotronNorm[] = {
    {"norm.weight", "attn_norm.weight", "H", kNone, kAttentionNorm, HasMixer},
    {"norm.weight", "attn_norm.weight", "H", kNone, kMlpNorm, HasNoMixer},
};
constexpr TensorRow kNemotronAttention[] = {
    {"mixer.q_proj.weight", "attn_q.weight", "Q H", kRows, kQkv},
    {"mixer.k_proj.weight", "attn_k.weight", "K H", kRows, kQkv},
    {"mixer.v_proj.weight", "attn_v.weight", "K H", kRows, kQkv},
    {"mixer.o_proj.weight", "attn_output.weight", "H Q", kColumns, kO},
};
constexpr TensorRow kNemotronMamba[] = {
    {"mixer.in_proj.weight", "ssm_in.weight", "2Z+2J+T H", kRows, kStateIn},
    {"mixer.conv1d.weight", "ssm_conv1d.weight", "Z+2J U L", kRows, kStateTaps,
     HasState, kTaps},
    {"mixer.conv1d.bias", "ssm_conv1d.bias", "Z+2J", kRows, kStateBias,
     HasStateBias},
    {"mixer.A_log", "", "T", kRows, kStateLogRate, HasLogRate},
    {"mixer.A", "ssm_a", "T", kRows, kStateRate, HasRate},
    {"mixer.D", "ssm_d", "T", kRows, kStateSkip},
    {"mixer.dt_bias", "ssm_dt.bias", "T", kRows, kStateTimeBias},
    {"mixer.norm.weight", "ssm_norm.weight", "Z", kRows, kStateNorm,
     HasStateNorm},
    {"mixer.out_proj.weight", "ssm_out.weight", "H Z", kColumns, kStateOut},
};
constexpr TensorRow kNemotronMlp[] = {
    {"mixer.up_proj.weight", "ffn_up.weight", "F H", kRows, kGateUp},
    {"mixer.down_proj.weight", "ffn_down.weight", "H F", kColumns, kDown},
};
constexpr TensorRow kNemotronRouter[] = {
    {"mixer.gate.weight", "ffn_gate_inp.weight", "E H", kNone, kRouter, nullptr,
     kF32},
    {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias", "E", kNone,
     kCorrection},
    {"mixer.shared_experts.up_proj.weight", "ffn_up_shexp.weight", "S H", kRows,
     kSharedGateUp},
    {"mixer.shared_experts.down_proj.weight", "ffn_down_shexp.weight", "H S",
     kColumns, kSharedDown},
};
constexpr TensorRow kNemotronExperts[] = {
    {"mixer.experts.{}.up_proj.weight", "", "X H", kExperts, kExpertGateUp},
    {"mixer.experts.{}.down_proj.weight", "", "H X", kExperts, kExpertDown},
};

constexpr TensorRow kNemotronStacks[] = {
    {"mixer.experts.up_proj", "ffn_up_exps.weight", "E X H", kExperts,
     kExpertGateUp},
    {"mixer.experts.down_proj", "ffn_down_exps.weight", "E H X", kExperts,
     kExpertDown},
};

constexpr TensorRow kFalconTop[] = {
    {"model.embed_tokens.weight", "token_embd.weight", "V H", kNone,
     kEmbedding},
    {"model.final_layernorm.weight", "output_norm.weight", "H", kNone,
     kFinalNorm},
    {"lm_head.weight", "output.weight", "V H", kRows, kHead},
};
constexpr TensorRow kFalconMlp[] = {
    {"feed_forward.gate_proj.weight", "ffn_gate.weight", "F H", kRows, kGateUp},
    {"feed_forward.up_proj.weight", "ffn_up.weight", "F H", kRows, kGateUp},
    {"feed_forward.down_proj.weight", "ffn_down.weight", "H F", kColumns,
     kDown},
};
constexpr TensorRow kFalconMlpNorm[] = {
    {"pre_ff_layernorm.weight", "ffn_norm", "H", kNone, kMlpNorm},
};

}  // namespace

constexpr TensorTable kLfm2Tensors = {
    {kLfm2Norms, kLfm2Attention, kShortConvolution},
    {kLfm2Mlp},
    {kLfm2Router},
    {},
    {},
    kLfm2Experts,
    {},
    kLfm2Top};
constexpr TensorTable kQwen3NextTensors = {
    {kFirstNorm, kGatedAttention, kDeltaByHeads, kDelta, kQwenMlpNorm},
    {kPlainMlp},
    {kGatedMixture},
    {}};
constexpr TensorTable kQwen35Tensors = {
    {kFirstNorm, kGatedAttention, kDeltaApart, kDelta, kQwenMlpNorm},
    {kPlainMlp},
    {kGatedMixture},
    {}};
constexpr TensorTable kGraniteHybridTensors = {
    {kFirstNorm, kPlainAttention, kMamba, kPlainMlpNorm},
    {kGraniteSharedMlp},
    {kHybridRouter, kGraniteSharedExpert},
    {},
    {},
    {},
    kHybridExperts};
constexpr TensorTable kNemotronHTensors = {
    {kNemotronNorm, kNemotronAttention, kNemotronMamba},
    {kNemotronMlp},
    {kNemotronRouter},
    {},
    {},
    kNemotronExperts,
    {},
    kNemotronTop,
    kNemotronStacks};
constexpr TensorTable kFalconH1Tensors = {
    {kFirstNorm, kPlainAttention, kMamba, kFalconMlpNorm},
    {kFalconMlp},
    {},
    {},
    {},
    {},
    {},
    kFalconTop};

}  // namespace sluice
