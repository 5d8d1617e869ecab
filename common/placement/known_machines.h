#ifndef SLUICE_COMMON_PLACEMENT_KNOWN_MACHINES_H_
#define SLUICE_COMMON_PLACEMENT_KNOWN_MACHINES_H_

#include <span>
#include <string>

#include "common/base/status.h"
#include "common/placement/machines.h"

namespace sluice::placement {

// A GPU or a box as its maker describes it.
struct KnownMachine {
  const char* name;   // as `sluice plan --machine` takes it
  const char* title;  // of a GPU: as its driver names it
  // GiB; 0: as bought, NAME-GIB names it.
  int memory_gib;
  double read_gb_per_s;  // of the memory's clock and bus
  // Of a GPU: 10^12 operations a second of BF16 matrices, without sparsity. Of
  // a CPU: of F32 in its vectors, cores times clock times operations of a
  // clock.
  double tera_ops;
  bool is_gpu;
  const char* source;
};

std::span<const KnownMachine> KnownMachines();

// Returns a machine of the table: "rtx4090", or "m4-max-64" where memory is as
// bought. NOT_FOUND names the machines that there are; INVALID_ARGUMENT for a
// name without its memory.
StatusOr<Machine> FindKnownMachine(const std::string& name);

// Returns the GPU that a driver names so, or null.
const KnownMachine* KnownGpu(const std::string& title);

// Returns MACHINES.md, the table as a page.
std::string KnownMachinesPage();

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_KNOWN_MACHINES_H_
