#include "common/device/cpu/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "common/base/control_group.h"

namespace sluice {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kFallback = uint64_t{1} << 30;

uint64_t SystemAvailable() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  uint64_t kib = 0;
  while (in >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kUnknown;
}

}  // namespace

uint64_t AvailableMemory() {
  const uint64_t least =
      std::min(SystemAvailable(), ReadControlGroups().memory_left);
  return least == kUnknown ? kFallback : least;
}

}  // namespace sluice
