#ifndef SLUICE_COMMON_MODEL_CONFIG_DLLAMA_MODEL_H_
#define SLUICE_COMMON_MODEL_CONFIG_DLLAMA_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/dllama_file.h"
#include "common/weights/model_contents.h"
#include "common/weights/model_file.h"

namespace sluice {

// One tensor of a .m, in the file's order.
struct DllamaTensor {
  weights::TensorInfo info;  // the name is that of ExpertStorage::kSeparate
  WeightPlace place;
  size_t row = 0;  // of the place's rows
  int32_t layer = -1;
  int32_t expert = 0;
  bool is_matrix = false;          // of the header's type
  int64_t permuted_head_rows = 0;  // rows that are interleaved as a GGUF's
};

// Returns the header of a .m of this model. UNIMPLEMENTED names a model_type
// that the format has not, and what no key tells; INVALID_ARGUMENT a value
// outside of a key's limits, or a type of weights that no .m has.
StatusOr<weights::DllamaHeader> DllamaHeaderOf(const ModelConfig& config,
                                               weights::DType type);

// Returns the tensors of a .m of this header: embedding, router and vectors of
// F32, others of the header's type.
StatusOr<std::vector<DllamaTensor>> DllamaTensorsOf(
    const weights::DllamaHeader& header);

// Gives an opened model of distributed-llama the config.json that its header
// means, and its tensors by the family's table: names and shapes are the
// table's, the order is dllama's. Its q and k rows are those of a GGUF.
// INVALID_ARGUMENT names a tensor beyond the file's end, or the bytes behind
// the last one.
Status TranslateDllama(weights::ModelContents& contents);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_DLLAMA_MODEL_H_
