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

// XIDs of NVIDIA's catalogue after which a GPU is reset or replaced: it
// stopped, memory's errors spread or are not remapped, NVLink, the bus, or the
// driver's processors fail. After any other XID it computes on: a program
// causes it (13, 31, 43), or it is contained (63, 92, 94), and CUDA tells whom
// it concerns.
constexpr std::array<unsigned long long, 13> kOfTheGpu = {
    46, 48, 61, 62, 64, 74, 79, 95, 110, 119, 120, 140, 143};

bool IsOfTheGpu(unsigned long long xid) {
  return std::find(kOfTheGpu.begin(), kOfTheGpu.end(), xid) != kOfTheGpu.end();
}

bool IsLoss(int result) {
  return result == NvmlLibrary::kGpuIsLost ||
         result == NvmlLibrary::kResetRequired;
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
  Gpu gpu;
  gpu.id = id;
  int result = nvml_.device_by_uuid(id.c_str(), &gpu.device);
  if (result != NvmlLibrary::kSuccess && id.size() > kPrefix) {
    // CUDA does not say that a device is a slice.
    const std::string slice = "MIG-" + id.substr(kPrefix);
    result = nvml_.device_by_uuid(slice.c_str(), &gpu.device);
  }
  if (result != NvmlLibrary::kSuccess) {
    return FailedPrecondition("GPU ", id, ": ", nvml_.error_string(result));
  }
  Register(gpu);
  gpus_.push_back(std::move(gpu));
  return OkStatus();
}

void GpuWatch::Register(Gpu& gpu) {
  gpu.teller = gpu.device;
  NvmlLibrary::Device parent = nullptr;
  if (nvml_.parent_of_slice(gpu.device, &parent) == NvmlLibrary::kSuccess) {
    gpu.teller = parent;
    unsigned int instance = 0;
    if (nvml_.instance_of_slice(gpu.device, &instance) ==
        NvmlLibrary::kSuccess) {
      gpu.instance = instance;
    }
  }
  int result = NvmlLibrary::kSuccess;
  if (events_ == nullptr) {
    result = nvml_.event_set_create(&events_);
    if (result != NvmlLibrary::kSuccess) events_ = nullptr;
  }
  // A GPU without ECC has no double-bit errors to tell of.
  unsigned long long types = 0;
  if (result == NvmlLibrary::kSuccess) {
    result = nvml_.supported_events(gpu.teller, &types);
  }
  types &= NvmlLibrary::kXidError | NvmlLibrary::kDoubleBitError;
  if (result == NvmlLibrary::kSuccess && types != 0) {
    result = nvml_.register_events(gpu.teller, types, events_);
  }
  if (result == NvmlLibrary::kSuccess &&
      (types & NvmlLibrary::kXidError) != 0) {
    return;
  }
  LogWarning("GPU ", gpu.id, ": the driver does not tell of its XIDs: ",
             result == NvmlLibrary::kSuccess ? "it has no such event"
                                             : nvml_.error_string(result));
}

std::vector<GpuReading> GpuWatch::Readings() const {
  MutexLock lock(mutex_);
  return readings_;
}

bool GpuWatch::Gave(int result, Gpu& gpu) {
  if (result == NvmlLibrary::kSuccess) return true;
  if (IsLoss(result) && !std::exchange(gpu.is_lost, true)) {
    on_fault_(Cat("GPU ", gpu.id, ": ", nvml_.error_string(result)));
  }
  return false;
}

uint64_t GpuWatch::NewEccErrors(Gpu& gpu) {
  unsigned long long count = 0;
  if (!Gave(nvml_.total_ecc_errors(gpu.device, NvmlLibrary::kUncorrected,
                                   NvmlLibrary::kVolatile, &count),
            gpu)) {
    return 0;  // it may have no ECC
  }
  if (!gpu.first_ecc_errors.has_value()) gpu.first_ecc_errors = count;
  return count > *gpu.first_ecc_errors ? count - *gpu.first_ecc_errors : 0;
}

void GpuWatch::Read() {
  for (size_t i = 0; i < gpus_.size(); ++i) {
    Gpu& gpu = gpus_[i];
    NvmlLibrary::Memory memory;
    NvmlLibrary::Utilization rates;
    const bool has_memory = Gave(nvml_.memory_info(gpu.device, &memory), gpu);
    // A slice has none.
    const bool has_rates = Gave(nvml_.utilization(gpu.device, &rates), gpu);
    const uint64_t errors = NewEccErrors(gpu);
    {
      MutexLock lock(mutex_);
      GpuReading& reading = readings_[i];
      reading.memory_used = has_memory ? memory.used : 0;
      reading.memory_total = has_memory ? memory.total : 0;
      reading.busy = has_rates ? rates.gpu / 100.0 : 0;
      reading.ecc_errors = std::max(reading.ecc_errors, errors);
    }
    if (errors > 0) {
      on_fault_(Cat("GPU ", gpu.id, ": its memory has ", errors,
                    " errors that it did not correct"));
    }
  }
}

bool GpuWatch::IsOf(const NvmlLibrary::Event& event, const Gpu& gpu) {
  return event.device == gpu.teller &&
         (gpu.instance == NvmlLibrary::kNoInstance ||
          event.gpu_instance == NvmlLibrary::kNoInstance ||
          event.gpu_instance == gpu.instance);
}

void GpuWatch::TakeEvent() {
  NvmlLibrary::Event event;
  const int result = events_ == nullptr
                         ? NvmlLibrary::kTimeout
                         : nvml_.event_set_wait(events_, &event, kLookEveryMs);
  if (result != NvmlLibrary::kSuccess) {
    if (IsLoss(result)) {
      Read();  // names the GPU, if it is asked for
      on_fault_(Cat("a GPU of this process: ", nvml_.error_string(result)));
    }
    if (events_ == nullptr || result != NvmlLibrary::kTimeout) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookEveryMs));
    }
    return;
  }
  if (event.type != NvmlLibrary::kXidError) return;  // Read counts memory's
  for (size_t i = 0; i < gpus_.size(); ++i) {
    if (!IsOf(event, gpus_[i])) continue;
    {
      MutexLock lock(mutex_);
      ++readings_[i].xid_errors;
    }
    const std::string what =
        Cat("GPU ", gpus_[i].id, ": the driver tells of XID ", event.data);
    if (IsOfTheGpu(event.data)) {
      on_fault_(what);
    } else {
      LogWarning(what, ", after which it computes on");
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
