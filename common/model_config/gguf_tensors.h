#ifndef SLUICE_COMMON_MODEL_CONFIG_GGUF_TENSORS_H_
#define SLUICE_COMMON_MODEL_CONFIG_GGUF_TENSORS_H_

#include "common/base/status.h"
#include "common/model_config/gguf_keys.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/model_contents.h"

namespace sluice {

// Gives the tensors of a GGUF, whose config is read, the table's names, shapes
// and order of rows: a fused attn_qkv is cut into q, k and v where the table
// has these apart. Numbers of layers that are keys become tensors, whose bytes
// are the keys'. INVALID_ARGUMENT names a tensor of another shape, or a key of
// another type.
Status RenameGgufTensors(const GgufFamily& family, const TensorTable& table,
                         weights::ModelContents& contents);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_GGUF_TENSORS_H_
