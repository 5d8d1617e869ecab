#ifndef SLUICE_COMMON_MODEL_CONFIG_FAMILY_READERS_H_
#define SLUICE_COMMON_MODEL_CONFIG_FAMILY_READERS_H_

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/model_config/config_reader.h"
#include "common/model_config/model_config.h"

// The readers of the families' own keys (see Family::read), and parts that
// several share.
namespace sluice {

// Dense models (dense_families.cc).
Status ReadLlama(const ConfigReader& reader, ModelConfig& parsed);
Status ReadQwen2(const ConfigReader& reader, ModelConfig& parsed);
Status ReadQwen3(const ConfigReader& reader, ModelConfig& parsed);
Status ReadMistral(const ConfigReader& reader, ModelConfig& parsed);
Status ReadMinistral(const ConfigReader& reader, ModelConfig& parsed);
Status ReadInternLm3(const ConfigReader& reader, ModelConfig& parsed);
Status ReadMinistral3(const ConfigReader& reader, ModelConfig& parsed);
Status ReadSeedOss(const ConfigReader& reader, ModelConfig& parsed);
Status ReadSmolLm3(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGranite(const ConfigReader& reader, ModelConfig& parsed);
Status ReadErnie(const ConfigReader& reader, ModelConfig& parsed);
Status ReadHunyuan(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGlm(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGlm4(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGlm4v(const ConfigReader& reader, ModelConfig& parsed);
Status ReadPhi3(const ConfigReader& reader, ModelConfig& parsed);
Status ReadStarcoder2(const ConfigReader& reader, ModelConfig& parsed);
Status ReadCohere2(const ConfigReader& reader, ModelConfig& parsed);
Status ReadApertus(const ConfigReader& reader, ModelConfig& parsed);
Status ReadOlmo2(const ConfigReader& reader, ModelConfig& parsed);
Status ReadOlmo3(const ConfigReader& reader, ModelConfig& parsed);
Status ReadExaone4(const ConfigReader& reader, ModelConfig& parsed);
Status ReadCohere(const ConfigReader& reader, ModelConfig& parsed);
Status ReadStableLm(const ConfigReader& reader, ModelConfig& parsed);
Status ReadNemotron(const ConfigReader& reader, ModelConfig& parsed);
Status ReadHelium(const ConfigReader& reader, ModelConfig& parsed);
Status ReadArcee(const ConfigReader& reader, ModelConfig& parsed);

// Gemma (gemma_families.cc).
Status ReadGemma1(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGemma2(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGemma3(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGemma4(const ConfigReader& reader, ModelConfig& parsed);

// Models with states (state_families.cc).
Status ReadLfm2(const ConfigReader& reader, ModelConfig& parsed);
Status ReadLfm2Moe(const ConfigReader& reader, ModelConfig& parsed);
Status ReadQwen3Next(const ConfigReader& reader, ModelConfig& parsed);
Status ReadQwen35(const ConfigReader& reader, ModelConfig& parsed);
Status ReadQwen35Moe(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGraniteHybrid(const ConfigReader& reader, ModelConfig& parsed);
Status ReadNemotronH(const ConfigReader& reader, ModelConfig& parsed);
Status ReadFalconH1(const ConfigReader& reader, ModelConfig& parsed);

// Mixtures of experts (sparse_families.cc).
Status ReadMixtral(const ConfigReader& reader, ModelConfig& parsed);
Status ReadQwen2Moe(const ConfigReader& reader, ModelConfig& parsed);
Status ReadQwen3Moe(const ConfigReader& reader, ModelConfig& parsed);
Status ReadQwen3VlMoe(const ConfigReader& reader, ModelConfig& parsed);
Status ReadOlmoe(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGraniteMoe(const ConfigReader& reader, ModelConfig& parsed);
Status ReadErnieMoe(const ConfigReader& reader, ModelConfig& parsed);
Status ReadHunyuanMoe(const ConfigReader& reader, ModelConfig& parsed);
Status ReadMinimaxM2(const ConfigReader& reader, ModelConfig& parsed);
Status ReadDots1(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGlm4Moe(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGlm4vMoe(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGptOss(const ConfigReader& reader, ModelConfig& parsed);

// Reads the sizes that every mixture has; `experts` and `per_token` are the
// keys of their numbers.
struct ExpertKeys {
  const char* experts;
  const char* intermediate;
  const char* per_token = "num_experts_per_tok";
};
Status ReadExperts(const ConfigReader& reader, const ExpertKeys& keys,
                   int32_t num_layers, MoeConfig& moe);
// Latent attention (latent_families.cc).
Status ReadDeepseekV2(const ConfigReader& reader, ModelConfig& parsed);
Status ReadDeepseekV3(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGlm4MoeLite(const ConfigReader& reader, ModelConfig& parsed);
Status ReadGlmMoeDsa(const ConfigReader& reader, ModelConfig& parsed);
Status ReadDeepseekV32(const ConfigReader& reader, ModelConfig& parsed);

// Reads the sizes of the experts of mixtures with shared experts, and of their
// groups (sparse_families.cc).
Status ReadSharedMixture(const ConfigReader& reader, int32_t num_layers,
                         MoeConfig& moe);
// Reads DeepSeek V3's mixture: a sigmoid with a correction to choose, groups,
// shared experts in one MLP.
Status ReadSigmoidExperts(const ConfigReader& reader, int32_t num_layers,
                          MoeConfig& moe);
// Sets the experts of all layers from the first_k_dense_replace-th on.
Status SetExpertsBehindDense(const ConfigReader& reader, int64_t absent,
                             const MoeConfig& moe, ModelConfig& parsed);

// Gives experts to every decoder_sparse_step-th layer but those of
// mlp_only_layers.
Status ReadSparseLayers(const ConfigReader& reader, const MoeConfig& moe,
                        ModelConfig& parsed);
// Makes the weights of a token's experts sum to 1.
void NormaliseExperts(ModelConfig& parsed);
// Reads the groups of experts that a router chooses first.
Status ReadGroups(const ConfigReader& reader, MoeConfig& moe);

// Reads attention_bias: biases of q, k and v, and for most families of o.
Status ReadBias(const ConfigReader& reader, bool on_o, bool absent,
                ModelConfig& parsed);
// Reads the key of a bias of all of the MLP's products.
Status ReadMlpBias(const ConfigReader& reader, const char* key,
                   ModelConfig& parsed);
// Gives q and k a norm in every layer.
void SetQkNorm(QkNorm norm, ModelConfig& parsed);

// Returns whether use_sliding_window is true and there is a sliding_window.
StatusOr<bool> HasWindows(const ConfigReader& reader);
// Reads the windows that use_sliding_window switches on: by layer_types, else
// from layer max_window_layers on.
Status ReadWindowsFrom(const ConfigReader& reader, ModelConfig& parsed);
// Reads Qwen3's norms and biases of q, k, v and o.
Status ReadQwen3Attention(const ConfigReader& reader, ModelConfig& parsed);
// Returns which layers have windows: by layer_types, else by `usual`, called
// with the layer's number. Sets the windows of these, of the config's
// sliding_window; null: no windows.
template <typename Usual>
StatusOr<std::vector<bool>> ReadPattern(const ConfigReader& reader,
                                        const Usual& usual,
                                        ModelConfig& parsed);
// Of a pattern that `usual` tells for each layer.
StatusOr<std::vector<bool>> ReadPatternOf(const ConfigReader& reader,
                                          const std::vector<bool>& usual,
                                          ModelConfig& parsed);
template <typename Usual>
StatusOr<std::vector<bool>> ReadPattern(const ConfigReader& reader,
                                        const Usual& usual,
                                        ModelConfig& parsed) {
  std::vector<bool> windowed;
  for (int32_t i = 0; i < parsed.num_layers(); ++i) {
    windowed.push_back(usual(i));
  }
  return ReadPatternOf(reader, windowed, parsed);
}

// Returns a RoPE that turns nothing.
RopeConfig NoRope();
// Adds a RoPE, and gives it to the layers where `has` is true.
void SetRope(const RopeConfig& rope, const std::vector<bool>& has,
             ModelConfig& parsed);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_FAMILY_READERS_H_
