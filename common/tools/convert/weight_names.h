#ifndef SLUICE_COMMON_TOOLS_CONVERT_WEIGHT_NAMES_H_
#define SLUICE_COMMON_TOOLS_CONVERT_WEIGHT_NAMES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/weights/dtype.h"
#include "common/weights/encode_matrix.h"

namespace sluice {

// What a name of weights means: a type, a coding, or neither, as they are
// stored.
struct NamedWeights {
  std::optional<weights::DType> type;
  weights::Coding coding = weights::Coding::kNone;
};

// Returns the type that `name` means: that of weights::ToString in small
// letters, or distributed-llama's q40 and q80. INVALID_ARGUMENT names the known
// names.
StatusOr<weights::DType> WeightTypeByName(std::string_view name);

// As WeightTypeByName, also "stored" and the codings of all matrices of a
// folder: fp8, gptq, awq.
StatusOr<NamedWeights> WeightsByName(std::string_view name);
// Returns all names that WeightsByName knows.
std::vector<std::string> WeightsNames();

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_CONVERT_WEIGHT_NAMES_H_
