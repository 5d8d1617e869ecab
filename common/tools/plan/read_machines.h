#ifndef SLUICE_COMMON_TOOLS_PLAN_READ_MACHINES_H_
#define SLUICE_COMMON_TOOLS_PLAN_READ_MACHINES_H_

#include <string>

#include "common/base/status.h"
#include "common/placement/machines.h"

namespace sluice::plan {

// Reads a TOML file:
//
//   [link]                     # between machines that no [[links]] names
//   latency_ms = 0.1
//   gbit_per_s = 10
//   [[links]]                  # both ways
//   between = ["a", "b"]       # a name with a count: all of its copies
//   latency_ms = 4
//   gbit_per_s = 0.3
//   [[machine]]
//   name = "a"
//   count = 2                  # a-0 and a-1
//   memory = "48G"             # K, M, G, T are 1024s
//   known = "rtx4090"          # memory and rates of MACHINES.md; or:
//   read_gb_per_s = 80         # or: rates = "FILE" of sluice bench machine
//   byte_gop_per_s = 2000
//   f32_gop_per_s = 1000
//   price_per_hour = 0.4
//   address = "10.0.0.5"       # machines of one address are one box
//   device = "cuda:0,1"        # of its stages; memory is then theirs
//   role = "stage"             # or "experts"; "any": as the plan is faster
//
// A machine needs known, or memory and read_gb_per_s, or rates; a rate that is
// missing follows from the others. `rates` is relative to the file's folder.
// INVALID_ARGUMENT names a key, its value and what it must be.
StatusOr<placement::Machines> ReadMachines(const std::string& path);

}  // namespace sluice::plan

#endif  // SLUICE_COMMON_TOOLS_PLAN_READ_MACHINES_H_
