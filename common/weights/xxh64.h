#ifndef SLUICE_COMMON_WEIGHTS_XXH64_H_
#define SLUICE_COMMON_WEIGHTS_XXH64_H_

#include <cstddef>
#include <cstdint>

namespace sluice::weights {

// XXH64 of `size` bytes with seed 0, as its public specification has it, so
// that any tool can make it again. It finds damage, not intent: whoever may
// change a file on purpose can make another with the same sum.
uint64_t Xxh64(const void* data, size_t size);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_XXH64_H_
