#ifndef SLUICE_COMMON_CORE_EPOCHS_H_
#define SLUICE_COMMON_CORE_EPOCHS_H_

#include <cstdint>
#include <string>

#include "common/base/cat.h"
#include "common/core/ids.h"

// An epoch's number has a term in its upper 32 bits and a counter in its lower
// ones. A stage gives every gateway that takes hold of it a term of its own,
// above all that it has seen; no clock has a part in it.
namespace sluice {

// The highest term of an Assign: holds beyond it have room to count on.
inline constexpr uint64_t kMaxTerm = uint64_t{1} << 31;

constexpr uint64_t TermOf(Epoch epoch) { return epoch.value() >> 32; }

// Returns the number below the epochs of `term` and above all others before it.
// Needs a term below 2^32.
constexpr Epoch TermStart(uint64_t term) { return Epoch(term << 32); }

// "3.2": term 3, counter 2.
inline std::string EpochText(Epoch epoch) {
  return Cat(TermOf(epoch), ".", epoch.value() & UINT32_MAX);
}

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_EPOCHS_H_
