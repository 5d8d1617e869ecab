#ifndef SLUICE_COMMON_TOOLS_PLAN_MACHINES_H_
#define SLUICE_COMMON_TOOLS_PLAN_MACHINES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/tools/measure/machine_rates.h"

namespace sluice::plan {

// A machine that a cluster is planned on. A value.
struct Machine {
  std::string name;
  std::string address;          // host name or IP; empty: the name
  uint64_t memory = 0;          // bytes that the processes may take
  double price_per_hour = 0;    // in any currency; 0: none is given
  bool serves_experts = false;  // experts, else layers
  measure::MachineRates rates;
};

// The network between two machines. A value.
struct Link {
  double latency_seconds = 1e-4;  // of a message, one way
  double bytes_per_second = 1.25e9;
};

struct Machines {
  std::vector<Machine> machines;
  Link link;
};

// Reads a TOML file:
//
//   [link]
//   latency_ms = 0.1
//   gbit_per_s = 10
//   [[machine]]
//   name = "a"
//   count = 2                  # a-0 and a-1
//   memory = "48G"             # K, M, G, T are 1024s
//   read_gb_per_s = 80         # or: rates = "FILE" of sluice bench machine
//   byte_gop_per_s = 2000
//   f32_gop_per_s = 1000
//   price_per_hour = 0.4
//   address = "10.0.0.5"
//   role = "stage"             # or "experts"
//
// A machine needs memory and read_gb_per_s, or rates; a rate that is missing
// follows from the others. `rates` is relative to the file's folder.
// INVALID_ARGUMENT names a key, its value and what it must be.
StatusOr<Machines> ReadMachines(const std::string& path);

// Parses "MEMORY[,READ_GB[,BYTE_GOP[,F32_GOP]]]", "48G,80,2000". Errors as
// above.
StatusOr<Machine> ParseMachine(const std::string& text);

// Sets rates that are missing: 40 byte products per byte read, half as many
// of F32, and what sockets and threads usually take.
void FillRates(measure::MachineRates& rates);

}  // namespace sluice::plan

#endif  // SLUICE_COMMON_TOOLS_PLAN_MACHINES_H_
