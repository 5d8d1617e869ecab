#ifndef SLUICE_COMMON_MODEL_CONFIG_MODEL_FAMILIES_H_
#define SLUICE_COMMON_MODEL_CONFIG_MODEL_FAMILIES_H_

#include <string_view>

#include "common/base/status.h"
#include "common/model_config/config_reader.h"
#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"

namespace sluice {

// Models of one model_type. A value of constants.
struct Family {
  std::string_view model_type;
  // Reads what the family has beyond the sizes that all share, which `parsed`
  // has already: biases, norms, defaults of RoPE, the experts.
  // INVALID_ARGUMENT names a key whose value is not built.
  Status (*read)(const ConfigReader& reader, ModelConfig& parsed);
  const TensorTable* tensors;
};

// The family of the config's model_type. INVALID_ARGUMENT for one that is not
// built.
StatusOr<const Family*> FindFamily(const ConfigReader& reader);

// layer_types and sliding_window: which layers see how far.
Status ReadWindows(const ConfigReader& reader, ModelConfig& parsed);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_MODEL_FAMILIES_H_
