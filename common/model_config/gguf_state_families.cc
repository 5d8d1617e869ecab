// GGUF's architectures of models with states.
#include "common/base/json.h"
#include "common/model_config/gguf_keys.h"
#include "common/model_config/gguf_readers.h"
#include "common/model_config/gguf_rows.h"

namespace sluice::gguf {
namespace {

Json Four(const Json&) { return 4; }

// The gated delta rule. Qwen3.5's sections of positions are one of text.
constexpr GgufKey kDelta[] = {
    ReadAs(".ssm.conv_kernel", "linear_conv_kernel_dim", kInt),
    ReadAs(".ssm.state_size", "linear_key_head_dim", kInt),
    ReadAs(".ssm.group_count", "linear_num_key_heads", kInt),
    ReadAs(".ssm.time_step_rank", "linear_num_value_heads", kInt),
    ReadApart(".ssm.inner_size"),
    ReadAs(".full_attention_interval", "full_attention_interval", kInt, Four),
    ReadApart(".attention.recurrent_layers"),
    ReadApart(".nextn_predict_layers")};
constexpr GgufKey kDeltaMoe[] = {
    kDelta[0], kDelta[1], kDelta[2], kDelta[3], kDelta[4], kDelta[5], kDelta[6],
    kDelta[7], NumExperts("num_experts"), kExpertsUsed,
    ExpertSizeOrNull("moe_intermediate_size"),
    SharedSize("shared_expert_intermediate_size"), Normalised(Yes),
    // Of dense layers, which a file may have none of.
    ReadAs(".feed_forward_length", "intermediate_size", kInt, Null)};

// Heads of keys are of the layers with attention; the others have 0.
constexpr GgufKey kKvOfLayers = ReadApart(".attention.head_count_kv");

constexpr GgufKey kLfm2[] = {
    kKvOfLayers, ReadAs(".shortconv.l_cache", "conv_L_cache", kInt)};
constexpr GgufKey kLfm2Moe[] = {
    kKvOfLayers,
    ReadAs(".shortconv.l_cache", "conv_L_cache", kInt),
    NumExperts("num_experts"),
    kExpertsUsed,
    kExpertSize,
    DenseLayers("num_dense_layers", Zero),
    Normalised(Yes),
    kRoutedScale};

// Mamba 2.
constexpr GgufKey kInnerSize = ReadApart(".ssm.inner_size");
constexpr GgufKey kTaps = ReadAs(".ssm.conv_kernel", "mamba_d_conv", kInt);
constexpr GgufKey kState = ReadAs(".ssm.state_size", "mamba_d_state", kInt);
constexpr GgufKey kStateGroups =
    ReadAs(".ssm.group_count", "mamba_n_groups", kInt);
constexpr GgufKey kStateHeads =
    ReadAs(".ssm.time_step_rank", "mamba_n_heads", kInt);

constexpr GgufKey kGraniteHybrid[] = {
    kTaps,
    kState,
    kStateGroups,
    kStateHeads,
    kInnerSize,
    kKvOfLayers,
    kAttentionScale,
    kEmbeddingScale,
    kResidualScale,
    kLogitsScaling,
    ReadAs(".expert_count", "num_local_experts", kInt, Zero),
    ReadAs(".expert_used_count", "num_experts_per_tok", kInt, Zero),
    SharedSize("shared_intermediate_size")};
constexpr GgufKey kFalconH1[] = {kTaps, kState, kStateGroups, kStateHeads,
                                 kInnerSize};

constexpr GgufKey kNemotronH[] = {
    ReadAs(".ssm.conv_kernel", "conv_kernel", kInt),
    ReadAs(".ssm.state_size", "ssm_state_size", kInt),
    ReadAs(".ssm.group_count", "n_groups", kInt),
    ReadAs(".ssm.time_step_rank", "mamba_num_heads", kInt), kInnerSize,
    kKvOfLayers, ReadApart(".feed_forward_length"),
    // Says what the key of RMS norms says.
    ReadApart(".attention.layer_norm_epsilon"),
    ReadApart(".nextn_predict_layers")};
constexpr GgufKey kNemotronHMoe[] = {
    kNemotronH[0],
    kNemotronH[1],
    kNemotronH[2],
    kNemotronH[3],
    kNemotronH[4],
    kNemotronH[5],
    kNemotronH[6],
    kNemotronH[7],
    kNemotronH[8],
    NumExperts("n_routed_experts"),
    kExpertsUsed,
    kExpertSize,
    SharedSize("moe_shared_expert_intermediate_size"),
    SharedCount("n_shared_experts", One),
    Normalised(Yes),
    kRoutedScale,
    kGroups,
    kGroupsUsed};

constexpr GgufFamily kStateFamilies[] = {
    {.architecture = "qwen3next",
     .model_type = "qwen3_next",
     .hugging_face = "Qwen3NextForCausalLM",
     .keys = kDeltaMoe,
     .gating = GgufGating::kSoftmax,
     .read = ReadQwen3NextGguf,
     .is_written = false},
    {.architecture = "qwen35",
     .model_type = "qwen3_5_text",
     .hugging_face = "Qwen3_5ForCausalLM",
     .keys = kDelta,
     .read = ReadQwen35Gguf,
     .is_written = false,
     .tiled_heads = true,
     .three_sections = true},
    {.architecture = "qwen35moe",
     .model_type = "qwen3_5_moe_text",
     .hugging_face = "Qwen3_5MoeForCausalLM",
     .keys = kDeltaMoe,
     .gating = GgufGating::kSoftmax,
     .read = ReadQwen35MoeGguf,
     .is_written = false,
     .tiled_heads = true,
     .three_sections = true},
    {.architecture = "lfm2",
     .model_type = "lfm2",
     .hugging_face = "Lfm2ForCausalLM",
     .keys = kLfm2,
     .read = ReadLfm2Gguf,
     .is_written = false},
    {.architecture = "lfm2moe",
     .model_type = "lfm2_moe",
     .hugging_face = "Lfm2MoeForCausalLM",
     .keys = kLfm2Moe,
     .gating = GgufGating::kSigmoid,
     .read = ReadLfm2MoeGguf,
     .is_written = false},
    {.architecture = "granitehybrid",
     .model_type = "granitemoehybrid",
     .hugging_face = "GraniteMoeHybridForCausalLM",
     .keys = kGraniteHybrid,
     .gating = GgufGating::kSoftmax,
     .permuted = true,
     .read = ReadGraniteHybridGguf,
     .is_written = false},
    {.architecture = "nemotron_h",
     .model_type = "nemotron_h",
     .hugging_face = "NemotronHForCausalLM",
     .keys = kNemotronH,
     .permuted = true,
     .read = ReadNemotronHGguf,
     .is_written = false},
    {.architecture = "nemotron_h_moe",
     .model_type = "nemotron_h",
     .hugging_face = "NemotronHForCausalLM",
     .keys = kNemotronHMoe,
     .gating = GgufGating::kSigmoid,
     .permuted = true,
     .read = ReadNemotronHGguf,
     .is_written = false},
    {.architecture = "falcon-h1",
     .model_type = "falcon_h1",
     .hugging_face = "FalconH1ForCausalLM",
     .keys = kFalconH1,
     .read = ReadFalconH1Gguf,
     .is_written = false},
};

}  // namespace

std::span<const GgufFamily> StateFamilies() { return kStateFamilies; }

}  // namespace sluice::gguf
