#ifndef SLUICE_COMMON_PLACEMENT_MACHINES_H_
#define SLUICE_COMMON_PLACEMENT_MACHINES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/placement/machine_rates.h"

namespace sluice::placement {

// A machine that a cluster is planned on. A value.
struct Machine {
  std::string name;
  std::string address;          // host name or IP; empty: the name
  std::string device;           // "cuda:G[,G...]"; empty or "cpu": its CPUs
  uint64_t memory = 0;          // bytes that the processes may take
  double price_per_hour = 0;    // in any currency; 0: none is given
  bool serves_experts = false;  // experts, else layers
  // Experts or layers, as a plan is faster; serves_experts is not read.
  bool serves_any = false;
  MachineRates rates;
  bool is_measured = false;  // the rates; else they are of a data sheet
};

// The network between two machines. A value.
struct Link {
  double latency_seconds = 1e-4;  // of a message, one way
  double bytes_per_second = 1.25e9;
  bool operator==(const Link&) const = default;
};

// The network between two machines of a list, both ways.
struct PairLink {
  int32_t a = 0, b = 0;  // machines
  Link link;
};

struct Machines {
  std::vector<Machine> machines;
  Link link;                    // between machines that no pair names
  bool is_link_named = false;   // else `link` is what is usual
  std::vector<PairLink> links;  // of pairs, the last one of a pair counts

  const Link& Between(int32_t a, int32_t b) const;
  bool HasPair(int32_t a, int32_t b) const;  // whether `links` has it
};

// Parses a figure of a machine. INVALID_ARGUMENT, with `key` and the text,
// unless it is positive, or 0 that `may_be_zero`.
StatusOr<double> ParseFigure(const std::string& key, const std::string& text,
                             bool may_be_zero = false);

// Parses "MEMORY[,READ_GB[,BYTE_GOP[,F32_GOP]]]", "48G,80,2000".
// INVALID_ARGUMENT names a figure, its text and what it must be.
StatusOr<Machine> ParseMachine(const std::string& text);

// Sets rates that are missing: 40 byte products per byte read, half as many
// of F32, and what sockets and threads usually take.
void FillRates(MachineRates& rates);

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_MACHINES_H_
