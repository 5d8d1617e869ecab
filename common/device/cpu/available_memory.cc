#include "common/device/cpu/available_memory.h"

#include <algorithm>

#include "common/base/control_group.h"

namespace sluice {

uint64_t AvailableMemory() {
  constexpr uint64_t kFallback = uint64_t{1} << 30;
  const uint64_t least =
      std::min(ReadMemInfo("MemAvailable"), ReadControlGroups().memory_left);
  return least == ControlGroupLimits::kNoLimit ? kFallback : least;
}

}  // namespace sluice
