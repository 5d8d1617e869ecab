#ifndef SLUICE_SERVICES_CLI_LOGITS_FILE_H_
#define SLUICE_SERVICES_CLI_LOGITS_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "services/cli/http_client.h"

namespace sluice::cli {

// Logits [ids, vocabulary] of the cluster.
struct LogitRows {
  size_t columns = 0;
  std::vector<float> values;
};

// Returns the logits after each of `ids` (at least one), as bytes of
// /debug/logits. NOT_FOUND if the gateway has it off.
StatusOr<LogitRows> FetchLogits(const BaseUrl& base,
                                const std::vector<int64_t>& ids);

// The content of --dump-logits.
struct LogitsDump {
  std::vector<int64_t> ids;   // [T]
  std::vector<float> logits;  // [T, V], after ids[0..t]
  int64_t vocab_size = 0;     // V
};

// Writes safetensors with `ids` (I64 [T]) and `logits` (F32 [T, V]) to `path`,
// whole or not at all.
Status WriteLogitsFile(const std::string& path, const LogitsDump& dump);

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

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_LOGITS_FILE_H_
