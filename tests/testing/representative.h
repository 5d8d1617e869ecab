#ifndef SLUICE_TESTS_TESTING_REPRESENTATIVE_H_
#define SLUICE_TESTS_TESTING_REPRESENTATIVE_H_

#include <cstdlib>

namespace sluice::testing {

inline bool IsLong() { return std::getenv("SLUICE_LONG") != nullptr; }

// Whether to leave out what is slow under any sanitizer: also most cuts of a
// law, whose bits other builds compare and whose memory and threads one cut
// shows. Not where SLUICE_LONG is set.
inline bool OnlyQuick() {
#if defined(SLUICE_ASAN) || defined(SLUICE_TSAN)
  return !IsLong();
#else
  return false;
#endif
}

// Whether a large matrix is to run in part: under ThreadSanitizer, which takes
// some twenty times as long, unless SLUICE_LONG is set.
inline bool OnlyRepresentative() {
#if defined(SLUICE_TSAN)
  return !IsLong();
#else
  return false;
#endif
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TESTING_REPRESENTATIVE_H_
