#include "common/device/cpu/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

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

// Returns the number in a control group's file; nothing for "max" or no file.
uint64_t GroupNumber(const std::string& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  return in >> value ? value : kUnknown;
}

// Returns the group's bytes of file pages, which the system reclaims on demand:
// those of a model file just read, for example.
uint64_t GroupFilePages(const std::string& path) {
  std::ifstream in(path);
  std::string key;
  uint64_t bytes = 0;
  uint64_t total = 0;
  while (in >> key >> bytes) {
    if (key == "active_file" || key == "inactive_file") total += bytes;
  }
  return total;
}

uint64_t GroupAvailable() {
  const std::string root = "/sys/fs/cgroup/";  // our own, in a container
  const uint64_t limit = GroupNumber(root + "memory.max");
  const uint64_t current = GroupNumber(root + "memory.current");
  if (limit == kUnknown || current == kUnknown) return kUnknown;
  const uint64_t files = GroupFilePages(root + "memory.stat");
  const uint64_t used = current > files ? current - files : 0;
  return limit > used ? limit - used : 0;
}

}  // namespace

uint64_t AvailableMemory() {
  const uint64_t least = std::min(SystemAvailable(), GroupAvailable());
  return least == kUnknown ? kFallback : least;
}

}  // namespace sluice
