#ifndef SLUICE_COMMON_MODEL_CONFIG_GGUF_KEYS_H_
#define SLUICE_COMMON_MODEL_CONFIG_GGUF_KEYS_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/model_config/model_config.h"
#include "common/weights/gguf_file.h"
#include "common/weights/model_file.h"

// What a GGUF's metadata and config.json say of a model, as data that both
// directions read: open_model.cc makes a config of metadata, gguf_keys.cc makes
// metadata of a config.
namespace sluice {

// One key of the metadata and the key of config.json that says the same.
struct GgufKey {
  enum class Type : uint8_t { kInt, kFloat, kBool };

  std::string_view gguf;  // behind the architecture: ".block_count"
  const char* config;
  Type type;
  // Returns what a writer stores; null: nothing.
  Json (*value)(const ModelConfig& config);
  // Returns what `config`, filled so far, has where a file lacks the key. Null:
  // a file must have the key.
  Json (*absent)(const Json& config) = nullptr;
};

// GGUF's numbers for how a router's logits become weights.
enum class GgufGating : int64_t {
  kUnset,
  kSoftmax,
  kSigmoid,
  kSoftmaxOfSelected
};

// A GGUF architecture and the model_type that it stands for.
struct GgufFamily {
  std::string_view architecture;
  std::string_view model_type;
  std::string_view hugging_face;           // config.json's architectures
  std::span<const GgufKey> keys;           // beyond those of all families
  GgufGating gating = GgufGating::kUnset;  // of a mixture
  // llama.cpp's converter interleaves q and k rows within a head.
  bool permuted = false;
};

// The keys that all families share, in an order in which `absent` may read
// those before.
std::span<const GgufKey> SharedGgufKeys();

// Return null for an architecture or a model_type without a GGUF.
const GgufFamily* FindGgufFamily(std::string_view architecture);
const GgufFamily* GgufFamilyOf(std::string_view model_type);

// Returns the metadata of a GGUF of this model, without its tokenizer, from
// general.architecture to NAME.rope.scaling.type. `tensors` are the GGUF's.
// UNIMPLEMENTED names what the architecture cannot say: OpenModel of such a
// file would give another config.
StatusOr<weights::GgufMetadata> GgufKeysOf(
    const ModelConfig& config, const std::vector<weights::TensorInfo>& tensors);

// Returns the elements of rope_freqs.weight [rotary_dim / 2], by which
// frequencies are divided; empty for a scaling that keys tell.
std::vector<float> RopeDivisorsOf(const RopeConfig& rope);

// Returns the name of the row's tensor in a GGUF: "blk.3.attn_q.weight".
std::string GgufNameOf(std::string_view row_name, int32_t layer);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_GGUF_KEYS_H_
