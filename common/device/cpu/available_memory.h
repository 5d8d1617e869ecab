#ifndef SLUICE_COMMON_DEVICE_CPU_AVAILABLE_MEMORY_H_
#define SLUICE_COMMON_DEVICE_CPU_AVAILABLE_MEMORY_H_

#include <cstdint>

namespace sluice {

// Bytes of memory that this process may still take: what the system calls
// available, or what is left of its control group's limit if that is less.
// 1 GiB where neither can be read.
uint64_t AvailableMemory();

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CPU_AVAILABLE_MEMORY_H_
