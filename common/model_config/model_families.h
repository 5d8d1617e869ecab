#ifndef SLUICE_COMMON_MODEL_CONFIG_MODEL_FAMILIES_H_
#define SLUICE_COMMON_MODEL_CONFIG_MODEL_FAMILIES_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/status.h"
#include "common/model_config/config_reader.h"
#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"

namespace sluice {

// Limits that several readers share, far above released models.
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadDim = 1024;
inline constexpr int64_t kMaxPattern = 1 << 20;

// A key that a family names in its own way, and the usual name.
struct RenamedKey {
  std::string_view own;
  std::string_view usual;
  bool yields = false;  // where a config has both, the usual key tells
};

// One model_type and its tensors. A value of constants.
struct Family {
  std::string_view model_type;
  // Reads the family's own keys into `parsed`, which has the shared sizes:
  // biases, norms, defaults of RoPE, experts. INVALID_ARGUMENT names a key with
  // a value that is not built.
  Status (*read)(const ConfigReader& reader, ModelConfig& parsed);
  const TensorTable* tensors;
  // What transformers' class has for keys that a config lacks: a JSON object.
  std::string_view defaults = {};
  std::span<const RenamedKey> renamed = {};
  std::string_view activation = "silu";
  bool needs_keys = false;  // a config must have rms_norm_eps and rope_theta
};

// Returns the family of the config's model_type. INVALID_ARGUMENT for one that
// is not built.
StatusOr<const Family*> FindFamily(const ConfigReader& reader);

// Checks that a quantised checkpoint is of a method whose tensors
// common/weights/composed_tensor.h reads.
Status CheckQuantisation(const ConfigReader& reader);

// Reads RoPE's keys as transformers does. `rope` has the family's defaults:
// theta (0: 10000), rotary_dim, style. INVALID_ARGUMENT names key, limit and
// value.
Status ReadRope(const ConfigReader& reader, std::string_view layer_type,
                int32_t head_dim, RopeConfig& rope);

// Reads layer_types, if it is there, and sliding_window into the layers'
// windows. For families whose reference reads layer_types.
Status ReadLayerTypes(const ConfigReader& reader, ModelConfig& parsed);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_MODEL_FAMILIES_H_
