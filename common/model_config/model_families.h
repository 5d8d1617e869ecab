#ifndef SLUICE_COMMON_MODEL_CONFIG_MODEL_FAMILIES_H_
#define SLUICE_COMMON_MODEL_CONFIG_MODEL_FAMILIES_H_

#include <string>

#include "common/base/status.h"
#include "common/model_config/config_reader.h"
#include "common/model_config/model_config.h"

namespace sluice {

// Reads what a family of models has beyond the sizes that all share, which
// `parsed` has already: biases, norms, defaults of RoPE, the experts.
// INVALID_ARGUMENT names a key whose value is not built.
using FamilyReader = Status (*)(const ConfigReader& reader,
                                ModelConfig& parsed);

// The reader of the config's model_type, which it also gives.
StatusOr<FamilyReader> FindFamily(const ConfigReader& reader,
                                  std::string& model_type);

// layer_types and sliding_window: which layers see how far.
Status ReadWindows(const ConfigReader& reader, ModelConfig& parsed);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_MODEL_FAMILIES_H_
