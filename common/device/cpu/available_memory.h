#ifndef SLUICE_COMMON_DEVICE_CPU_AVAILABLE_MEMORY_H_
#define SLUICE_COMMON_DEVICE_CPU_AVAILABLE_MEMORY_H_

#include <cstdint>

namespace sluice {

// Returns the bytes of memory that this process may still take: the system's
// available memory, or the rest of its control groups' limit if that is less. 1
// GiB if neither can be read.
uint64_t AvailableMemory();

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CPU_AVAILABLE_MEMORY_H_
