#ifndef SLUICE_COMMON_WEIGHTS_QUANTISATION_H_
#define SLUICE_COMMON_WEIGHTS_QUANTISATION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json_fwd.h"

namespace sluice::weights {

// Of a dimension: sizes made of two of them are numbers.
inline constexpr int64_t kMaxDimension = int64_t{1} << 40;

// What config.json says of the checkpoint's quantisation.
struct Quantisation {
  std::string method;  // empty: nothing is said
  std::string version;
  bool symmetric = true;
  bool orders_columns = false;  // GPTQ's desc_act
  int64_t bits = 4;             // of most matrices
  // Rows and columns with one scale, where matrices have blocks of them.
  std::vector<std::pair<int64_t, int64_t>> blocks;
};

// Reads quantization_config; what is of another type is not said.
Quantisation QuantisationOf(const Json& config);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_QUANTISATION_H_
