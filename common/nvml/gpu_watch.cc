#include "common/nvml/gpu_watch.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "common/base/cat.h"
#include "common/base/end_process.h"
#include "common/base/log.h"

namespace sluice {
namespace {

constexpr unsigned kLookEveryMs = 500;

// XIDs that a program's own faults cause: another's are none of ours, and of
// our own CUDA tells.
constexpr std::array<unsigned long long, 6> kOfPrograms = {13, 31, 43,
                                                           45, 68, 109};

bool IsOfProgram(unsigned long long xid) {
  return std::find(kOfPrograms.begin(), kOfPrograms.end(), xid) !=
         kOfPrograms.end();
}

}  // namespace

StatusOr<std::unique_ptr<GpuWatch>> GpuWatch::Start(
    const std::vector<std::string>& ids, const std::string& library,
    std::function<void(const std::string&)> on_fault) {
  SLUICE_ASSIGN_OR_RETURN(NvmlLibrary nvml, NvmlLibrary::Load(library));
  if (!on_fault) {
    on_fault = [](const std::string& why) { EndToBeReplaced(why); };
  }
  std::unique_ptr<GpuWatch> watch(
      new GpuWatch(std::move(nvml), std::move(on_fault)));
  for (const std::string& id : ids) {
    SLUICE_RETURN_IF_ERROR(watch->Find(id));
  }
  {
    MutexLock lock(watch->mutex_);
    watch->readings_.resize(watch->gpus_.size());
  }
  watch->Read();
  watch->thread_ =
      NamedThread("gpu-watch", [self = watch.get()] { self->Watch(); });
  return watch;
}

GpuWatch::~GpuWatch() {
  stop_ = true;
  thread_.Join();
  if (events_ != nullptr) nvml_.event_set_free(events_);
}

Status GpuWatch::Find(const std::string& id) {
  constexpr size_t kPrefix = 4;
  Gpu gpu = {id, nullptr, 0};
  int result = nvml_.device_by_uuid(id.c_str(), &gpu.device);
  if (result != NvmlLibrary::kSuccess && id.size() > kPrefix) {
    // CUDA does not say that a device is a slice.
    const std::string slice = "MIG-" + id.substr(kPrefix);
    result = nvml_.device_by_uuid(slice.c_str(), &gpu.device);
  }
  if (result != NvmlLibrary::kSuccess) {
    return FailedPrecondition("GPU ", id, ": ", nvml_.error_string(result));
  }
  gpu.first_ecc_errors = EccErrors(gpu);
  gpus_.push_back(gpu);
  if (events_ == nullptr &&
      nvml_.event_set_create(&events_) != NvmlLibrary::kSuccess) {
    events_ = nullptr;
    return OkStatus();
  }
  result = nvml_.register_events(
      gpu.device, NvmlLibrary::kXidError | NvmlLibrary::kDoubleBitError,
      events_);
  if (result != NvmlLibrary::kSuccess) {
    LogWarning("GPU ", id, ": errors of the driver are not told: ",
               nvml_.error_string(result));
  }
  return OkStatus();
}

std::vector<GpuReading> GpuWatch::Readings() const {
  MutexLock lock(mutex_);
  return readings_;
}

uint64_t GpuWatch::EccErrors(const Gpu& gpu) const {
  unsigned long long count = 0;
  const int result = nvml_.total_ecc_errors(
      gpu.device, NvmlLibrary::kUncorrected, NvmlLibrary::kVolatile, &count);
  return result == NvmlLibrary::kSuccess ? count : 0;  // it may have no ECC
}

void GpuWatch::Read() {
  for (size_t i = 0; i < gpus_.size(); ++i) {
    const Gpu& gpu = gpus_[i];
    NvmlLibrary::Memory memory;
    NvmlLibrary::Utilization rates;
    const bool has_memory =
        nvml_.memory_info(gpu.device, &memory) == NvmlLibrary::kSuccess;
    // A slice has none.
    const bool has_rates =
        nvml_.utilization(gpu.device, &rates) == NvmlLibrary::kSuccess;
    const uint64_t ecc = EccErrors(gpu);
    const uint64_t errors =
        ecc > gpu.first_ecc_errors ? ecc - gpu.first_ecc_errors : 0;
    {
      MutexLock lock(mutex_);
      GpuReading& reading = readings_[i];
      if (has_memory) {
        reading.memory_used = memory.used;
        reading.memory_total = memory.total;
      }
      if (has_rates) reading.busy = rates.gpu / 100.0;
      reading.ecc_errors = std::max(reading.ecc_errors, errors);
    }
    if (errors > 0) {
      on_fault_(Cat("GPU ", gpu.id, ": its memory has ", errors,
                    " errors that it did not correct"));
    }
  }
}

void GpuWatch::TakeEvent() {
  NvmlLibrary::Event event;
  const int result = events_ == nullptr
                         ? NvmlLibrary::kTimeout
                         : nvml_.event_set_wait(events_, &event, kLookEveryMs);
  if (result != NvmlLibrary::kSuccess) {
    if (events_ == nullptr || result != NvmlLibrary::kTimeout) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookEveryMs));
    }
    return;
  }
  if (event.type != NvmlLibrary::kXidError) return;  // Read counts memory's
  for (size_t i = 0; i < gpus_.size(); ++i) {
    if (gpus_[i].device != event.device) continue;
    {
      MutexLock lock(mutex_);
      ++readings_[i].xid_errors;
    }
    const std::string what =
        Cat("GPU ", gpus_[i].id, ": the driver tells of XID ", event.data);
    if (IsOfProgram(event.data)) {
      LogWarning(what, ", a program's");
    } else {
      on_fault_(what);
    }
  }
}

void GpuWatch::Watch() {
  while (!stop_) {
    TakeEvent();
    Read();
  }
}

}  // namespace sluice
