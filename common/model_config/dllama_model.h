#ifndef SLUICE_COMMON_MODEL_CONFIG_DLLAMA_MODEL_H_
#define SLUICE_COMMON_MODEL_CONFIG_DLLAMA_MODEL_H_

#include "common/base/status.h"
#include "common/weights/model_contents.h"

namespace sluice {

// Gives an opened model of distributed-llama the config.json that its header
// means, and its tensors by the family's table: names and shapes are the
// table's, the order is dllama's. Its q and k rows are those of a GGUF.
// INVALID_ARGUMENT names a tensor beyond the file's end, or the bytes behind
// the last one.
Status TranslateDllama(weights::ModelContents& contents);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_DLLAMA_MODEL_H_
