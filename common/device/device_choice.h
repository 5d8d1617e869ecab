#ifndef SLUICE_COMMON_DEVICE_DEVICE_CHOICE_H_
#define SLUICE_COMMON_DEVICE_DEVICE_CHOICE_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace sluice {

// Which device a stage computes on.
struct DeviceChoice {
  bool cuda = false;  // else the CPU
  int index = 0;      // of the GPU, from 0
  bool operator==(const DeviceChoice&) const = default;
};

// Parses "cpu", "cuda" or "cuda:N". INVALID_ARGUMENT for anything else;
// UNIMPLEMENTED for several GPUs.
StatusOr<DeviceChoice> ParseDevice(const std::string& text);

// How a device computes: exactly as CPUs do, or, on a GPU, on its matrix units
// in BF16, with numerics of its own.
enum class Numerics : uint8_t { kCanonical, kFast };

// Parses "auto", "fast" or "canonical"; auto is fast on a GPU and canonical on
// a CPU. INVALID_ARGUMENT for anything else, and for fast on a CPU.
StatusOr<Numerics> ParseNumerics(const std::string& text,
                                 const DeviceChoice& device);

// Returns an error unless the device of ParseDevice's `text` is there:
// FAILED_PRECONDITION if this build has no CUDA, or for what is wrong with the
// driver or the GPU.
Status CheckDevice(const std::string& text);

// Returns an error unless the device has the numerics, as ParseDevice and
// ParseNumerics; looks for no GPU.
Status CheckNumerics(const std::string& device, const std::string& numerics);

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_DEVICE_CHOICE_H_
