#include "common/base/control_group.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>
#include <string_view>

namespace sluice {
namespace {

constexpr uint64_t kNoLimit = ControlGroupLimits::kNoLimit;
// Version 1 writes a number near 2^63 for none.
constexpr uint64_t kLargestLimit = uint64_t{1} << 62;

// Returns the number in a group's file; kNoLimit for "max" or no file.
uint64_t GroupNumber(const std::string& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  return in >> value && value < kLargestLimit ? value : kNoLimit;
}

// Returns the group's bytes of file pages: those of a model file just read, for
// example. `prefix` is "total_" in version 1.
uint64_t GroupFilePages(const std::string& path, const std::string& prefix) {
  std::ifstream in(path);
  std::string key;
  uint64_t bytes = 0;
  uint64_t total = 0;
  while (in >> key >> bytes) {
    if (key == prefix + "active_file" || key == prefix + "inactive_file") {
      total += bytes;
    }
  }
  return total;
}

void AddMemory(uint64_t limit, uint64_t current, uint64_t file_pages,
               ControlGroupLimits& limits) {
  if (limit == kNoLimit) return;
  limits.memory_limit = std::min(limits.memory_limit, limit);
  if (current == kNoLimit) return;
  const uint64_t used = current > file_pages ? current - file_pages : 0;
  limits.memory_left =
      std::min(limits.memory_left, limit > used ? limit - used : 0);
}

void AddQuota(double quota, double period, ControlGroupLimits& limits) {
  if (quota > 0 && period > 0) {
    limits.cpus = std::min(limits.cpus, quota / period);
  }
}

void AddVersion2(const std::string& folder, ControlGroupLimits& limits) {
  AddMemory(std::min(GroupNumber(folder + "memory.max"),
                     GroupNumber(folder + "memory.high")),
            GroupNumber(folder + "memory.current"),
            GroupFilePages(folder + "memory.stat", ""), limits);
  std::ifstream in(folder + "cpu.max");  // "200000 100000", "max 100000"
  double quota = 0;
  double period = 0;
  if (in >> quota >> period) AddQuota(quota, period, limits);
}

void AddMemoryVersion1(const std::string& folder, ControlGroupLimits& limits) {
  AddMemory(GroupNumber(folder + "memory.limit_in_bytes"),
            GroupNumber(folder + "memory.usage_in_bytes"),
            GroupFilePages(folder + "memory.stat", "total_"), limits);
}

void AddCpuVersion1(const std::string& folder, ControlGroupLimits& limits) {
  std::ifstream quota_file(folder + "cpu.cfs_quota_us");  // -1: none
  std::ifstream period_file(folder + "cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (quota_file >> quota && period_file >> period) {
    AddQuota(quota, period, limits);
  }
}

// Calls `add` with the folder of group `path`, which begins with "/", and those
// of the groups above up to `mount`. In a container `path` may be the host's
// name of the group that is mounted: folders without files say nothing.
void Climb(const std::string& mount, std::string path,
           const std::function<void(const std::string&)>& add) {
  if (path.find("/..") != std::string::npos) path = "/";
  while (path.size() > 1) {
    add(mount + path + "/");
    path.resize(path.rfind('/'));
  }
  add(mount + "/");
}

bool HasController(const std::string& list, std::string_view name) {
  std::istringstream in(list);
  for (std::string one; std::getline(in, one, ',');) {
    if (one == name) return true;
  }
  return false;
}

}  // namespace

ControlGroupLimits ReadControlGroups(const std::string& root) {
  ControlGroupLimits limits;
  const std::string mount = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  // "0::/user.slice/a" in version 2, "4:cpu,cpuacct:/a" in version 1.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    if (names.empty()) {
      Climb(mount, path, [&](const auto& at) { AddVersion2(at, limits); });
    }
    if (HasController(names, "memory")) {
      Climb(mount + "/memory", path,
            [&](const auto& at) { AddMemoryVersion1(at, limits); });
    }
    if (HasController(names, "cpu")) {
      Climb(mount + "/" + names, path,
            [&](const auto& at) { AddCpuVersion1(at, limits); });
    }
  }
  return limits;
}

uint64_t ReadMemInfo(std::string_view name, const std::string& root) {
  std::ifstream in(root + "/proc/meminfo");
  std::string key;  // "MemAvailable:", then kiB
  uint64_t kib = 0;
  while (in >> key >> kib) {
    if (key.size() == name.size() + 1 && key.rfind(name, 0) == 0) {
      return kib * 1024;
    }
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kNoLimit;
}

int UsableCpus(const ControlGroupLimits& limits) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cpus = CPU_COUNT(&set);
  if (std::isfinite(limits.cpus)) {
    cpus = std::min(cpus, static_cast<int>(std::ceil(limits.cpus)));
  }
  return std::max(cpus, 1);
}

}  // namespace sluice
