#ifndef SLUICE_COMMON_SERVICE_VERSION_TEXT_H_
#define SLUICE_COMMON_SERVICE_VERSION_TEXT_H_

#include <string>
#include <string_view>

namespace sluice {

// Returns what `program --version` prints: its version, the commit, and the
// versions of the protocols between processes, a line each.
std::string VersionText(std::string_view program);

}  // namespace sluice

#endif  // SLUICE_COMMON_SERVICE_VERSION_TEXT_H_
