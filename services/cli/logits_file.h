#ifndef SLUICE_SERVICES_CLI_LOGITS_FILE_H_
#define SLUICE_SERVICES_CLI_LOGITS_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace sluice::cli {

// What --dump-logits keeps.
struct LogitsDump {
  std::vector<int64_t> ids;   // [T]
  std::vector<float> logits;  // [T, V], after ids[0..t]
  int64_t vocab_size = 0;     // V
};

// Writes safetensors with `ids` (I64 [T]) and `logits` (F32 [T, V]) to
// `path`, whole or not at all.
Status WriteLogitsFile(const std::string& path, const LogitsDump& dump);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_LOGITS_FILE_H_
