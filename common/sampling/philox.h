#ifndef SLUICE_COMMON_SAMPLING_PHILOX_H_
#define SLUICE_COMMON_SAMPLING_PHILOX_H_

#include <array>
#include <cstdint>

namespace sluice {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011): a keyed function of a counter, without state, so that a draw can be
// repeated anywhere.
using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key);

// Returns a number in [0, 1) on the grid of 2^-53, keyed by a request's seed,
// the choice's index and the drawn token's position.
double UniformFor(uint64_t seed, uint32_t choice, uint32_t position);

}  // namespace sluice

#endif  // SLUICE_COMMON_SAMPLING_PHILOX_H_
