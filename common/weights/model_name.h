#ifndef SLUICE_COMMON_WEIGHTS_MODEL_NAME_H_
#define SLUICE_COMMON_WEIGHTS_MODEL_NAME_H_

#include <string>

#include "common/weights/model_file.h"

namespace sluice::weights {

// The model's name for people, the first of these that exists:
// "sluice_model_name" of its config (1 to 96 of A-Z a-z 0-9 . _ / -);
// "org/name" of a snapshot in a Hugging Face cache,
// ".../models--org--name/snapshots/HASH"; a .gguf file's name without its end;
// the folder's name.
std::string ModelName(const ModelFile& file);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_MODEL_NAME_H_
