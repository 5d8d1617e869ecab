#ifndef SLUICE_COMMON_MODEL_CONFIG_GGUF_READERS_H_
#define SLUICE_COMMON_MODEL_CONFIG_GGUF_READERS_H_

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/model_config/gguf_view.h"

// What the tables of GGUF's keys (gguf_families.cc) cannot say of an
// architecture: biases by their tensors, windows of some layers, scalings of
// RoPE by tensors. Each fills `config`, which has the values of all keys.
// INVALID_ARGUMENT names a key with a value that is not built.
namespace sluice {

// Of families with nothing of their own but biases.
Status ReadWholeHeadsGguf(const GgufView& gguf, Json& config);
// Llama's tensors with a window in every layer.
Status ReadWindowsGguf(const GgufView& gguf, Json& config);

// Latent attention, and with an indexer.
Status ReadLatentGguf(const GgufView& gguf, Json& config);
Status ReadIndexedGguf(const GgufView& gguf, Json& config);
Status ReadGlmDsaGguf(const GgufView& gguf, Json& config);

Status ReadLlamaGguf(const GgufView& gguf, Json& config);
Status ReadMixtralGguf(const GgufView& gguf, Json& config);
Status ReadMinistral3Gguf(const GgufView& gguf, Json& config);
Status ReadQwen2Gguf(const GgufView& gguf, Json& config);
Status ReadQwen3VlMoeGguf(const GgufView& gguf, Json& config);
Status ReadQwen2MoeGguf(const GgufView& gguf, Json& config);
Status ReadSeedOssGguf(const GgufView& gguf, Json& config);
Status ReadSmolLm3Gguf(const GgufView& gguf, Json& config);
Status ReadGraniteGguf(const GgufView& gguf, Json& config);
Status ReadGraniteMoeGguf(const GgufView& gguf, Json& config);
Status ReadErnieGguf(const GgufView& gguf, Json& config);
Status ReadErnieMoeGguf(const GgufView& gguf, Json& config);
Status ReadHunyuanMoeGguf(const GgufView& gguf, Json& config);
Status ReadGlmGguf(const GgufView& gguf, Json& config);
Status ReadPhi3Gguf(const GgufView& gguf, Json& config);
Status ReadStarcoder2Gguf(const GgufView& gguf, Json& config);
Status ReadCohere2Gguf(const GgufView& gguf, Json& config);
Status ReadOlmo3Gguf(const GgufView& gguf, Json& config);
Status ReadOlmoeGguf(const GgufView& gguf, Json& config);
Status ReadExaone4Gguf(const GgufView& gguf, Json& config);
Status ReadArceeGguf(const GgufView& gguf, Json& config);
Status ReadStableLmGguf(const GgufView& gguf, Json& config);
Status ReadNemotronGguf(const GgufView& gguf, Json& config);
Status ReadGemma1Gguf(const GgufView& gguf, Json& config);
Status ReadGemma2Gguf(const GgufView& gguf, Json& config);
Status ReadGemma3Gguf(const GgufView& gguf, Json& config);
Status ReadGemma4Gguf(const GgufView& gguf, Json& config);
Status ReadMinimaxM2Gguf(const GgufView& gguf, Json& config);

// Models with states (gguf_state_readers.cc).
Status ReadQwen3NextGguf(const GgufView& gguf, Json& config);
Status ReadQwen35Gguf(const GgufView& gguf, Json& config);
Status ReadQwen35MoeGguf(const GgufView& gguf, Json& config);
Status ReadLfm2Gguf(const GgufView& gguf, Json& config);
Status ReadLfm2MoeGguf(const GgufView& gguf, Json& config);
Status ReadGraniteHybridGguf(const GgufView& gguf, Json& config);
Status ReadNemotronHGguf(const GgufView& gguf, Json& config);
Status ReadFalconH1Gguf(const GgufView& gguf, Json& config);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_GGUF_READERS_H_
