#ifndef SLUICE_COMMON_BASE_CONTROL_GROUP_H_
#define SLUICE_COMMON_BASE_CONTROL_GROUP_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace sluice {

// The limits of the control groups (cgroups) that a process is in.
struct ControlGroupLimits {
  static constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

  double cpus = std::numeric_limits<double>::infinity();  // of time, per second
  uint64_t memory_limit = kNoLimit;                       // bytes
  // Bytes of memory_limit that are not in use; pages of files, which the system
  // reclaims, are not in use.
  uint64_t memory_left = kNoLimit;
};

// Returns the least limits of this process's groups and of the groups above, of
// version 1 and 2. What cannot be read limits nothing. `root` stands before
// /proc and /sys, for tests.
ControlGroupLimits ReadControlGroups(const std::string& root = "");

// Returns the bytes that a line of /proc/meminfo names, as "MemAvailable";
// kNoLimit where it cannot be read. `root` as above.
uint64_t ReadMemInfo(std::string_view name, const std::string& root = "");

// Returns the number of CPUs that keep this process busy: the CPUs of the
// process's affinity, or the quota of `limits` rounded up if that is less. At
// least 1.
int UsableCpus(const ControlGroupLimits& limits = ReadControlGroups());

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_CONTROL_GROUP_H_
