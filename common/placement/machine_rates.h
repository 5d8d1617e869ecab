#ifndef SLUICE_COMMON_PLACEMENT_MACHINE_RATES_H_
#define SLUICE_COMMON_PLACEMENT_MACHINE_RATES_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "kernels/weight_type.h"

// How fast a machine is at the parts of a step: what a plan of a cluster is
// reckoned from.
namespace sluice::placement {

// The rows of activations at which products are measured.
inline constexpr std::array<int32_t, 5> kRateRows = {1, 4, 8, 32, 128};

// Seconds that an element of a weight takes in a product with kRateRows[i] rows
// of activations. A value.
struct ProductRate {
  using Seconds = std::array<double, kRateRows.size()>;
  kernels::WeightType type = kernels::WeightType::kF32;
  Seconds from_memory{};
  Seconds from_cache{};
  bool operator==(const ProductRate&) const = default;
};

// 0 and empty: not known. A value.
struct MachineRates {
  std::string cpu;
  std::string isa;
  int32_t threads = 0;
  // Bandwidth is that of the memory's clock and bus, arithmetic that of BF16
  // matrices.
  bool is_gpu = false;
  double read_gb_per_s = 0;   // of all threads
  double byte_gop_per_s = 0;  // of products of bytes, all threads
  double f32_gop_per_s = 0;   // of fused multiply-adds, all threads
  double join_seconds = 0;    // a fork and join of all threads
  double wake_seconds = 0;    // a message to a thread that sleeps
  double cache_bytes = 0;     // of the largest cache
  std::vector<ProductRate> products;
  bool operator==(const MachineRates&) const = default;
};

// As JSON, and back. INVALID_ARGUMENT names a member that is missing, of
// another kind or not positive.
std::string RatesJson(const MachineRates& rates);
StatusOr<MachineRates> ParseRates(const std::string& text);

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_MACHINE_RATES_H_
