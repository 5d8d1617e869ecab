#ifndef SLUICE_COMMON_CORE_EPOCHS_H_
#define SLUICE_COMMON_CORE_EPOCHS_H_

#include <cstdint>

#include "common/core/ids.h"

// A stage gives every gateway that takes hold of it a term of its own, above
// all that it has seen; no clock has a part in it.
namespace sluice {

// The highest term that an Assign or a hold may have. A term has 63 bits, so
// that every JSON reader's signed integer holds it.
inline constexpr uint64_t kMaxTerm = INT64_MAX;

// How far an Assign may be above the term that the stage gave to the hold, and
// how far one hello may raise a stage towards the others (Hello.term): a hold
// cannot use up the terms, nor part its stage from the others.
inline constexpr uint64_t kTermsPerHold = 1000;

// A gateway refuses a stage that is further above the others: no number of
// honest holds leads there, and the gateway would take the others along.
inline constexpr uint64_t kMostTermsAbove = uint64_t{1} << 20;

// A stage that is further below the others is not raised: at kTermsPerHold a
// hello that would take minutes.
inline constexpr uint64_t kMostTermsBelow = uint64_t{1} << 24;

// Whether `term` is above `other` by more than `most`.
constexpr bool IsAboveBy(uint64_t term, uint64_t other, uint64_t most) {
  return term > other && term - other > most;
}

// Returns `term` and `more`, or the highest term.
constexpr uint64_t RaisedTerm(uint64_t term, uint64_t more) {
  return term > kMaxTerm - more ? kMaxTerm : term + more;
}

// Returns what is below the epochs of `term` and above all others before it.
constexpr Epoch TermStart(uint64_t term) { return {term, 0}; }

// Returns the epoch as the value of a metric: 21 bits of the term, 32 of the
// count, which a double holds exactly, so that another epoch is another value.
constexpr double EpochMetric(Epoch epoch) {
  return static_cast<double>((epoch.term() & 0x1fffff) << 32 |
                             (epoch.count() & UINT32_MAX));
}

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_EPOCHS_H_
