#ifndef SLUICE_COMMON_MODEL_CONFIG_DESCRIBED_MODEL_H_
#define SLUICE_COMMON_MODEL_CONFIG_DESCRIBED_MODEL_H_

#include <memory>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/weights/dtype.h"
#include "common/weights/model_file.h"

// Models whose weights are not there: what their config.json says is enough to
// count bytes.
namespace sluice {

// Returns the type of the name "f32", "f16", "bf16", "fp8", "mxfp4", "q4_0",
// "q4_k", ... INVALID_ARGUMENT lists the names.
StatusOr<weights::DType> ParseStoredType(const std::string& name);

// Opens the model at `path` by its headers alone. Where a folder has a
// config.json and lacks weights, or with `stored`, the tensors are those that
// the config asks for and have no bytes: they must not be read. `path` may be
// the config.json itself.
//
// The tensors' type is `stored`, else what quantization_config says, else
// torch_dtype, else BF16. FP8 and MXFP4 leave out what such checkpoints leave
// out: embeddings and head, of MXFP4 all but the experts. Rows that are no
// whole number of long blocks have short ones, as llama.cpp makes them, else
// BF16. Errors of OpenModel; INVALID_ARGUMENT for a
// `stored` without config.json and for a config that is not built.
StatusOr<std::unique_ptr<weights::ModelFile>> DescribeModel(
    const std::string& path, std::optional<weights::DType> stored = {});

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_DESCRIBED_MODEL_H_
