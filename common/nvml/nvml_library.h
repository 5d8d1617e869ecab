#ifndef SLUICE_COMMON_NVML_NVML_LIBRARY_H_
#define SLUICE_COMMON_NVML_NVML_LIBRARY_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace sluice {

// What Sluice calls of NVML, the driver's library that watches GPUs, by the
// names and the binary interface of nvml.h. Loaded when a process computes on a
// GPU: the binary neither needs nor holds it.
struct NvmlLibrary {
  using Device = void*;
  using EventSet = void*;
  struct Memory {
    unsigned long long total = 0;
    unsigned long long free = 0;
    unsigned long long used = 0;
  };
  struct Utilization {
    unsigned int gpu = 0;  // per cent of the last sample in which it computed
    unsigned int memory = 0;
  };
  struct Event {
    Device device = nullptr;
    unsigned long long type = 0;
    unsigned long long data = 0;    // an XID
    unsigned int gpu_instance = 0;  // kNoInstance: of the whole GPU
    unsigned int compute_instance = 0;
  };
  static constexpr unsigned int kNoInstance = 0xFFFFFFFF;
  static constexpr int kSuccess = 0;
  static constexpr int kTimeout = 10;
  static constexpr int kGpuIsLost = 15;
  static constexpr int kResetRequired = 16;
  static constexpr int kUncorrected = 1;  // a kind of memory errors
  static constexpr int kVolatile = 0;     // since the driver was loaded
  static constexpr unsigned long long kDoubleBitError = 2;
  static constexpr unsigned long long kXidError = 8;

  int (*init)() = nullptr;
  int (*device_by_uuid)(const char* uuid, Device* device) = nullptr;
  // Of a slice: the GPU that it is of, and which instance there.
  int (*parent_of_slice)(Device slice, Device* parent) = nullptr;
  int (*instance_of_slice)(Device slice, unsigned int* instance) = nullptr;
  int (*memory_info)(Device device, Memory* memory) = nullptr;
  int (*utilization)(Device device, Utilization* rates) = nullptr;
  int (*total_ecc_errors)(Device device, int kind, int counter,
                          unsigned long long* count) = nullptr;
  int (*event_set_create)(EventSet* set) = nullptr;
  int (*event_set_free)(EventSet set) = nullptr;
  int (*supported_events)(Device device, unsigned long long* types) = nullptr;
  // Refuses all types if the device lacks one of them.
  int (*register_events)(Device device, unsigned long long types,
                         EventSet set) = nullptr;
  int (*event_set_wait)(EventSet set, Event* event,
                        unsigned int milliseconds) = nullptr;
  const char* (*error_string)(int result) = nullptr;

  // Loads and starts the library that the system's loader finds under `name`,
  // for good. NOT_FOUND if there is none; FAILED_PRECONDITION for one that
  // lacks a call or does not start.
  static StatusOr<NvmlLibrary> Load(
      const std::string& name = "libnvidia-ml.so.1");
};

}  // namespace sluice

#endif  // SLUICE_COMMON_NVML_NVML_LIBRARY_H_
