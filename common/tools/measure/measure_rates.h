#ifndef SLUICE_COMMON_TOOLS_MEASURE_MEASURE_RATES_H_
#define SLUICE_COMMON_TOOLS_MEASURE_MEASURE_RATES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/placement/machine_rates.h"
#include "kernels/weight_type.h"

namespace sluice::measure {

// Rows and columns of a weight. A value.
struct MatrixShape {
  int64_t rows = 0;
  int64_t cols = 0;
};

struct RateOptions {
  int32_t threads = 0;       // 0: as many as this process has cores
  std::string isa = "auto";  // see ParseIsa in cpu_options.h
  int32_t rounds = 5;        // of which medians are taken
  std::vector<kernels::WeightType> types;  // whose products are measured
  // Of the weights, so that small ones take what they take in their model; {}:
  // large ones from memory, small ones from a cache.
  MatrixShape shape;
};

// Measures this machine, for a second or two and for each type one more, with
// about 300 MB of memory. INVALID_ARGUMENT for an isa that this machine lacks.
StatusOr<placement::MachineRates> MeasureRates(const RateOptions& options);

// Whether `rates` are those of this processor with options.threads and
// options.isa, and have every type of `options`. INVALID_ARGUMENT as above.
StatusOr<bool> AreCurrent(const placement::MachineRates& rates,
                          const RateOptions& options);

}  // namespace sluice::measure

#endif  // SLUICE_COMMON_TOOLS_MEASURE_MEASURE_RATES_H_
