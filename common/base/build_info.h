#ifndef SLUICE_COMMON_BASE_BUILD_INFO_H_
#define SLUICE_COMMON_BASE_BUILD_INFO_H_

#include <string_view>

namespace sluice {

// The version this binary was built as, the project's in CMakeLists.txt:
// "0.1.0".
std::string_view BuildVersion();
// The checkout's commit when it was configured, 12 digits; "unknown" outside
// of one.
std::string_view BuildCommit();

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_BUILD_INFO_H_
