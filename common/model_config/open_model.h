#ifndef SLUICE_COMMON_MODEL_CONFIG_OPEN_MODEL_H_
#define SLUICE_COMMON_MODEL_CONFIG_OPEN_MODEL_H_

#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/weights/model_file.h"

namespace sluice {

// Opens a model as weights::OpenModel. A GGUF of a known architecture gets a
// config.json from its metadata and tensor names of the family's table
// (tensor_table.h). Another GGUF gets the model_type "gguf ARCHITECTURE", which
// ParseModelConfig refuses by name.
StatusOr<std::unique_ptr<weights::ModelFile>> OpenModel(
    const std::string& path);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_OPEN_MODEL_H_
