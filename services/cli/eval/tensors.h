#ifndef SLUICE_SERVICES_CLI_EVAL_TENSORS_H_
#define SLUICE_SERVICES_CLI_EVAL_TENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace sluice::cli {

// A tensor of a reference file: one of `floats` and `ints` is filled.
struct ReferenceTensor {
  std::vector<int64_t> shape;
  std::vector<float> floats;  // F32
  std::vector<int64_t> ints;  // I64
};

// The F32 and I64 tensors of a safetensors file, by name; others are left
// out. INVALID_ARGUMENT names what is wrong with the file.
StatusOr<std::map<std::string, ReferenceTensor>> ReadTensors(
    const std::string& path);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_EVAL_TENSORS_H_
