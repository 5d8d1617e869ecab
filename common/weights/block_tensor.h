#ifndef SLUICE_COMMON_WEIGHTS_BLOCK_TENSOR_H_
#define SLUICE_COMMON_WEIGHTS_BLOCK_TENSOR_H_

#include "common/base/status.h"
#include "common/weights/model_file.h"

// Rows of GGUF's blocks in safetensors, which has no type for them: a tensor
// of U8 whose name ends with the type, "q_proj.weight_q4_k". Its shape is the
// matrix's, with a row's bytes in the place of its columns.
namespace sluice::weights {

// Returns the tensor of bytes that stores `blocks`, a tensor of a block type.
TensorInfo BytesOfBlocks(const TensorInfo& blocks);

// Returns the tensor that `stored` has the bytes of, else `stored` itself.
// INVALID_ARGUMENT names a row that is no whole number of blocks.
StatusOr<TensorInfo> BlocksOfBytes(const TensorInfo& stored);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_BLOCK_TENSOR_H_
