#ifndef SLUICE_COMMON_DEVICE_DEVICE_CHOICE_H_
#define SLUICE_COMMON_DEVICE_DEVICE_CHOICE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/tensor/weight_format.h"
#include "kernels/block_format.h"

namespace sluice {

// Which device a stage computes on.
struct DeviceChoice {
  bool cuda = false;  // else the CPU
  // GPUs by number ("0") or id ("GPU-..", "MIG-.."), at least one; several: a
  // tensor-parallel rank on each.
  std::vector<std::string> gpus = {};
  bool operator==(const DeviceChoice&) const = default;
};

// Parses "cpu", "cuda" or "cuda:G[,G...]", where G is a GPU's number, or its id
// or the beginning of that, as nvidia-smi -L shows it. INVALID_ARGUMENT for
// anything else, for a GPU that is named twice, and for a MIG slice among
// others.
StatusOr<DeviceChoice> ParseDevice(const std::string& text);

// Returns the ranks of a stage that asks for `ranks`, 1 being the default: as
// many as there are GPUs, if there are several. INVALID_ARGUMENT for another
// number then.
StatusOr<int32_t> RanksOn(const std::string& device, int32_t ranks);

// How a device computes: exactly as CPUs do, or, on a GPU, on its matrix units
// in BF16, with numerics of its own.
enum class Numerics : uint8_t { kCanonical, kFast };

// Parses "auto", "fast" or "canonical"; auto is fast on a GPU and canonical on
// a CPU. INVALID_ARGUMENT for anything else, and for fast on a CPU.
StatusOr<Numerics> ParseNumerics(const std::string& text,
                                 const DeviceChoice& device);

// Returns `text` if it names devices of ParseDevice that are there. For "auto"
// a GPU, the CPU if there is none or Sluice does not run on it, and says in the
// log which and why; stages of one machine, numbered by `place`, take GPUs in
// turn, and without a place (-1) the one with the most free memory, for which
// all are opened. FAILED_PRECONDITION if this build has no CUDA, or for what is
// wrong with the driver or a GPU.
StatusOr<std::string> ChooseDevice(const std::string& text, int32_t place = -1);
// The same for a name other than "auto".
Status CheckDevice(const std::string& text);
// Returns the GPU that "auto" takes for `place`, by each one's free memory in
// bytes, 0: it cannot be used; -1: none can.
int TakeGpu(std::span<const uint64_t> available, int32_t place);

// Returns an error unless the device has the numerics, as ParseDevice and
// ParseNumerics; looks for no GPU.
Status CheckNumerics(const std::string& device, const std::string& numerics);

// INVALID_ARGUMENT where blocks are to be widened for F32 activations, but
// ParseNumerics makes the numerics fast.
Status CheckActivations(kernels::BlockActivations activations,
                        const std::string& device, const std::string& numerics);
// INVALID_ARGUMENT where blocks are to be widened that a GPU, `gpu` if not
// empty, is to multiply.
Status CheckWidened(kernels::BlockActivations activations,
                    const WeightFormatSet& formats, const std::string& gpu);

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_DEVICE_CHOICE_H_
