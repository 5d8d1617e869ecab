#ifndef SLUICE_COMMON_TOOLS_DOCTOR_MACHINE_CHECK_H_
#define SLUICE_COMMON_TOOLS_DOCTOR_MACHINE_CHECK_H_

#include <cstdint>
#include <string>

#include "common/base/control_group.h"
#include "common/tools/doctor/finding.h"

namespace sluice::doctor {

// What a machine has. A value; 0 and empty: not known.
struct MachineFacts {
  std::string cpu;
  std::string isa;  // the widest that the kernels use here
  int32_t cpus = 0;
  int32_t usable_cpus = 0;  // of the affinity and the CPU quota
  ControlGroupLimits groups;
  uint64_t memory = 0;
  uint64_t available_memory = 0;
  std::string huge_pages;  // "always", "madvise" or "never"
  uint64_t open_files = 0;
  int32_t gpus = 0;
  double read_gb_per_s = 0;  // by all usable CPUs
};

// Reads the facts but for cpu, isa and read_gb_per_s; `root` stands before
// /proc, /sys and /dev, for tests.
MachineFacts ReadMachineFacts(const std::string& root = "");
// Adds cpu, isa and, in a quarter of a second, read_gb_per_s of this machine.
void MeasureMachine(MachineFacts& facts);

Findings JudgeMachine(const MachineFacts& facts);

}  // namespace sluice::doctor

#endif  // SLUICE_COMMON_TOOLS_DOCTOR_MACHINE_CHECK_H_
