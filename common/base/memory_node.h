#ifndef SLUICE_COMMON_BASE_MEMORY_NODE_H_
#define SLUICE_COMMON_BASE_MEMORY_NODE_H_

#include <cstddef>
#include <vector>

// The NUMA nodes of this machine: memory of a CPU's own node is faster.
namespace sluice {

inline constexpr int kAnyNode = -1;

// Returns the node of all of `cpus`; kAnyNode for CPUs of several nodes, for
// none, and where the system does not tell.
int NodeOfCpus(const std::vector<int>& cpus);

// Asks the system to take the pages that lie within [memory, memory + bytes)
// from `node`, while the node has some, whichever thread touches a page first.
// Does nothing for kAnyNode, and on systems without nodes.
void PreferNode(void* memory, size_t bytes, int node);

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_MEMORY_NODE_H_
