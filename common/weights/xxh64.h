#ifndef SLUICE_COMMON_WEIGHTS_XXH64_H_
#define SLUICE_COMMON_WEIGHTS_XXH64_H_

#include <cstddef>
#include <cstdint>

namespace sluice::weights {

// XXH64 of `size` bytes with seed 0, as its public specification defines it, so
// that any tool can compute it. XXH64 finds damage, not intent: an attacker can
// make another file with the same sum.
uint64_t Xxh64(const void* data, size_t size);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_XXH64_H_
