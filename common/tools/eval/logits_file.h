#ifndef SLUICE_COMMON_TOOLS_EVAL_LOGITS_FILE_H_
#define SLUICE_COMMON_TOOLS_EVAL_LOGITS_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/http/http_client.h"

namespace sluice::eval {

// Logits [ids, vocabulary] of the cluster.
struct LogitRows {
  size_t columns = 0;
  std::vector<float> values;
};

// Returns the logits after each of `ids` (at least one), as bytes of
// /debug/logits. NOT_FOUND if the gateway has it off.
StatusOr<LogitRows> FetchLogits(const http::BaseUrl& base,
                                const std::vector<int64_t>& ids);

// Writes safetensors with `ids` (I64 [T]) and `logits` (F32 [T, V], row t after
// ids[0..t]) to `path`, whole or not at all. INTERNAL for other numbers of
// rows.
Status WriteLogitsFile(const std::string& path, const std::vector<int64_t>& ids,
                       const LogitRows& logits);

// A tensor of a reference file: one of `floats` and `ints` is filled.
struct ReferenceTensor {
  std::vector<int64_t> shape;
  std::vector<float> floats;  // F32
  std::vector<int64_t> ints;  // I64
};

// Returns the F32 and I64 tensors of a safetensors file by name.
// INVALID_ARGUMENT names the error in the file.
StatusOr<std::map<std::string, ReferenceTensor>> ReadTensors(
    const std::string& path);

}  // namespace sluice::eval

#endif  // SLUICE_COMMON_TOOLS_EVAL_LOGITS_FILE_H_
