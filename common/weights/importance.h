#ifndef SLUICE_COMMON_WEIGHTS_IMPORTANCE_H_
#define SLUICE_COMMON_WEIGHTS_IMPORTANCE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/cat.h"

namespace sluice::weights {

// By a matrix's name in safetensors: a weight, not below 0, for each of its
// columns. A matrix without an entry has columns of one importance.
using Importance = std::map<std::string, std::vector<float>, std::less<>>;

// Returns the name of an expert's matrix in a tensor of all experts.
inline std::string StackedName(const std::string& tensor, int64_t expert) {
  return Cat(tensor, "[", expert, "]");
}

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_IMPORTANCE_H_
