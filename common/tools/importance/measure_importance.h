#ifndef SLUICE_COMMON_TOOLS_IMPORTANCE_MEASURE_IMPORTANCE_H_
#define SLUICE_COMMON_TOOLS_IMPORTANCE_MEASURE_IMPORTANCE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/weights/importance.h"

namespace sluice {

struct ImportanceOptions {
  int32_t threads = 0;    // 0: as many as this process has cores
  int32_t context = 512;  // tokens of a chunk, at most the model's context
  // Called with the tokens that are done; may be empty.
  std::function<void(int64_t done, int64_t total)> progress;
};

// Runs the text `tokens` through the model (a folder or a file) and returns the
// importance of the columns of the layers' matrices: the mean of the squares of
// their inputs. INVALID_ARGUMENT for no tokens, one outside the vocabulary, and
// as Stage::Load.
StatusOr<weights::Importance> MeasureImportance(
    const std::string& model, std::span<const TokenId> tokens,
    const ImportanceOptions& options);

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_IMPORTANCE_MEASURE_IMPORTANCE_H_
