#ifndef SLUICE_SERVICES_CLI_CONVERT_CONVERT_MODEL_H_
#define SLUICE_SERVICES_CLI_CONVERT_CONVERT_MODEL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "kernels/block_format.h"

namespace sluice::cli {

struct ConvertOptions {
  std::string model;  // a folder of safetensors
  std::string out;    // a folder that is not there
  // Q4_0 or Q8_0; none: all matrices become BF16.
  std::optional<kernels::BlockFormat> format;
  std::string keep;  // a regular expression: such matrices become BF16
  uint64_t shard_bytes = uint64_t{4} << 30;  // aim of one file
};

// A matrix of the layers, as it was written.
struct ConvertedMatrix {
  std::string name;
  bool is_quantised = false;
  uint64_t bytes = 0;
  // Length of the difference from the source's elements over their length.
  double relative_error = 0;
};

struct ConvertReport {
  std::vector<ConvertedMatrix> matrices;
  uint64_t bytes_before = 0;  // of all tensors
  uint64_t bytes_after = 0;
  int num_files = 0;
};

// Writes the model with its layers' matrices in blocks, in the layout that
// compressed-tensors calls pack-quantized, one scale of F16 per 32 columns.
// Other tensors keep their bytes. Rows that are no whole blocks, and experts
// that are stacked in one tensor, become BF16. Holds one matrix at a time. The
// folder appears under its name when all of it is written, with checksums, the
// source's tokenizer and templates, and a report; a failure leaves OUT.partial,
// which the next run replaces. INVALID_ARGUMENT for a GGUF, an unknown model
// and an `out` that is there, RESOURCE_EXHAUSTED for a disk without the room.
StatusOr<ConvertReport> ConvertModel(
    const ConvertOptions& options,
    const std::function<void(uint64_t done, uint64_t total)>& progress);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_CONVERT_CONVERT_MODEL_H_
