#include "common/base/build_info.h"

namespace sluice {

std::string_view BuildVersion() { return SLUICE_VERSION; }
std::string_view BuildCommit() { return SLUICE_GIT; }

}  // namespace sluice
