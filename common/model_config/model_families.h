#ifndef SLUICE_COMMON_MODEL_CONFIG_MODEL_FAMILIES_H_
#define SLUICE_COMMON_MODEL_CONFIG_MODEL_FAMILIES_H_

#include <string_view>

#include "common/base/status.h"
#include "common/model_config/config_reader.h"
#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"

namespace sluice {

// One model_type and its tensors. A value of constants.
struct Family {
  std::string_view model_type;
  // Reads the family's own keys into `parsed`, which has the shared sizes:
  // biases, norms, defaults of RoPE, experts. INVALID_ARGUMENT names a key with
  // a value that is not built.
  Status (*read)(const ConfigReader& reader, ModelConfig& parsed);
  const TensorTable* tensors;
};

// Returns the family of the config's model_type. INVALID_ARGUMENT for one that
// is not built.
StatusOr<const Family*> FindFamily(const ConfigReader& reader);

// Reads layer_types and sliding_window into the layers' windows.
Status ReadWindows(const ConfigReader& reader, ModelConfig& parsed);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_MODEL_FAMILIES_H_
