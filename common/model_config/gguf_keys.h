#ifndef SLUICE_COMMON_MODEL_CONFIG_GGUF_KEYS_H_
#define SLUICE_COMMON_MODEL_CONFIG_GGUF_KEYS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/model_config/gguf_view.h"
#include "common/model_config/model_config.h"
#include "common/weights/gguf_file.h"
#include "common/weights/model_file.h"

// What a GGUF's metadata and config.json say of a model, as data that both
// directions read: open_model.cc makes a config of metadata, gguf_keys.cc makes
// metadata of a config.
namespace sluice {

// One key of the metadata and the key of config.json that says the same.
struct GgufKey {
  enum class Type : uint8_t { kInt, kFloat, kBool, kBools };

  std::string_view gguf;  // behind the architecture: ".block_count"
  const char* config;     // null: the family's `read` reads it
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
  // llama.cpp's converter parts the q and k rows that turn, even ones first.
  bool halved = false;
  std::string_view activation = "silu";
  // config.json's key of LayerNorms' epsilon; null: RMS norms.
  const char* layer_norm_epsilon = nullptr;
  // Tells which files of an architecture are this family's; null: all.
  bool (*has)(const weights::GgufMetadata& metadata) = nullptr;
  // Reads what no key says alone (gguf_readers.cc) into the config, which has
  // all keys' values.
  Status (*read)(const GgufView& gguf, Json& config) = nullptr;
  // The keys of a head's sizes are the family's `read`'s to read (latent
  // attention, heads of two sizes).
  bool own_head_sizes = false;
  // GgufKeysOf tells its keys; else files are read alone.
  bool is_written = true;
  // Value heads of the gated delta rule stand tiled: the first of every key
  // head, then the second of every key head.
  bool tiled_heads = false;
  // A position has three numbers, which are the same for text
  // (.rope.dimension_sections).
  bool three_sections = false;
};

// Returns the keys that all families share, in an order in which `absent` may
// read those before, and the family's own, which stand for shared ones of the
// same name.
std::vector<GgufKey> KeysOf(const GgufFamily& family);

// Return null for an architecture or a model_type without a GGUF. The first:
// the family of a file's metadata.
const GgufFamily* FindGgufFamily(const weights::GgufMetadata& metadata);
const GgufFamily* GgufFamilyOf(std::string_view model_type);
// Returns the names of all architectures, "llama, qwen2, ...".
std::string GgufArchitectures();

// Returns the metadata of a GGUF of this model, without its tokenizer, from
// general.architecture to NAME.rope.scaling.type. `tensors` are the GGUF's.
// UNIMPLEMENTED names what the architecture cannot say: OpenModel of such a
// file would give another config.
StatusOr<weights::GgufMetadata> GgufKeysOf(
    const ModelConfig& config, const std::vector<weights::TensorInfo>& tensors);

// A GGUF's vector of divisors of RoPE's frequencies [rotary_dim / 2].
struct GgufRopeTensor {
  std::string_view name;
  std::vector<float> elements;
};
// Returns the vectors that tell a scaling; empty for one that keys tell.
std::vector<GgufRopeTensor> RopeTensorsOf(const RopeConfig& rope);

// Returns the name of the row's tensor in a GGUF: "blk.3.attn_q.weight".
std::string GgufNameOf(std::string_view row_name, int32_t layer);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_GGUF_KEYS_H_
