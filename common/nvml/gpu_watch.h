#ifndef SLUICE_COMMON_NVML_GPU_WATCH_H_
#define SLUICE_COMMON_NVML_GPU_WATCH_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/concurrency/named_thread.h"
#include "common/nvml/nvml_library.h"

namespace sluice {

// What was last read of a GPU. What NVML did not give at the last reading is 0.
struct GpuReading {
  uint64_t memory_used = 0;   // bytes, of all processes
  uint64_t memory_total = 0;  // bytes
  double busy = 0;            // share of the time in which a kernel ran, 0 to 1
  uint64_t ecc_errors = 0;    // that memory did not correct, since the start
  uint64_t xid_errors = 0;    // that the driver told of, since the start
};

// Reads a process' GPUs, and ends the process (EndToBeReplaced) when one of
// them is not to be trusted: the driver tells of an XID after which a GPU
// computes nothing more (gpu_watch.cc has the list; others are counted), memory
// did not correct an error, or NVML says that the GPU is lost or must be reset.
// Calls of any thread.
class GpuWatch {
 public:
  // Looks at the GPUs with these ids (DeviceFacts) from the thread "gpu-watch".
  // `on_fault` takes why the process ends, and may return in tests. NOT_FOUND
  // and FAILED_PRECONDITION as NvmlLibrary::Load, and FAILED_PRECONDITION for
  // an id that NVML does not know.
  static StatusOr<std::unique_ptr<GpuWatch>> Start(
      const std::vector<std::string>& ids,
      const std::string& library = "libnvidia-ml.so.1",
      std::function<void(const std::string&)> on_fault = {});
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // Of each GPU, in the order of the ids, read half a second ago at most,
  // unless NVML itself is slow.
  std::vector<GpuReading> Readings() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Gpu {
    std::string id;
    NvmlLibrary::Device device = nullptr;
    // What tells of events: of a slice the GPU that it is of.
    NvmlLibrary::Device teller = nullptr;
    unsigned int instance = NvmlLibrary::kNoInstance;  // of a slice
    std::optional<uint64_t> first_ecc_errors;  // at the first count that came
    bool is_lost = false;
  };

  GpuWatch(NvmlLibrary nvml, std::function<void(const std::string&)> on_fault)
      : nvml_(std::move(nvml)), on_fault_(std::move(on_fault)) {}
  // FAILED_PRECONDITION for an id that NVML does not know.
  Status Find(const std::string& id);
  // Asks for the events of the GPU that there are.
  void Register(Gpu& gpu);
  void Watch();
  void Read() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for an event, at most half a second, and judges it.
  void TakeEvent() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether an event of it concerns the GPU or slice.
  static bool IsOf(const NvmlLibrary::Event& event, const Gpu& gpu);
  // Whether a call about the GPU gave what it was asked for. A GPU that is lost
  // or must be reset is a fault, told once.
  bool Gave(int result, Gpu& gpu);
  // Returns the errors since the watch began; 0 as long as NVML has no count.
  uint64_t NewEccErrors(Gpu& gpu);

  const NvmlLibrary nvml_;
  const std::function<void(const std::string&)> on_fault_;
  std::vector<Gpu> gpus_;
  NvmlLibrary::EventSet events_ = nullptr;  // null: none
  mutable Mutex mutex_;
  std::vector<GpuReading> readings_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> stop_{false};
  NamedThread thread_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_NVML_GPU_WATCH_H_
