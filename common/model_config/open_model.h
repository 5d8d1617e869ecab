#ifndef SLUICE_COMMON_MODEL_CONFIG_OPEN_MODEL_H_
#define SLUICE_COMMON_MODEL_CONFIG_OPEN_MODEL_H_

#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/weights/model_file.h"

namespace sluice {

// As weights::OpenModel. A GGUF of a known architecture gets the config.json
// that its metadata make, and its tensors the names of the family's table
// (tensor_table.h); of another one the model_type is "gguf ARCHITECTURE",
// which ParseModelConfig refuses by name.
StatusOr<std::unique_ptr<weights::ModelFile>> OpenModel(
    const std::string& path);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_OPEN_MODEL_H_
