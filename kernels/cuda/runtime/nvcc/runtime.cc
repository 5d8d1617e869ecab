#include "kernels/cuda/runtime/runtime.h"

#include <cuda_device/launch.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/cuda/runtime/device_errors.h"
#include "kernels/cuda/runtime/nvcc/sliced_copies.h"

namespace sluice::kernels::cuda {
namespace {

__global__ void Probe() {}

// Whether the code that this device runs waits for its inputs
// (Block::WaitForInputs): compiled for sm_90 and later, not for an older
// architecture and then by the driver.
bool CodeWaits() {
  cudaFuncAttributes code = {};
  if (cudaFuncGetAttributes(&code, Probe) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return code.ptxVersion >= 90;
}

class GpuRuntime final : public Runtime, LaunchGraphs::Device {
 public:
  GpuRuntime(int index, DeviceFacts facts)
      : index_(index), facts_(std::move(facts)), graphs_(this) {
    Adopt();
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
          "making a stream");
    for (Stretch& stretch : stretches_) {
      Check(cudaEventCreateWithFlags(&stretch.end, cudaEventDisableTiming),
            "making an event");
    }
    sink_.stream = stream_;
  }
  ~GpuRuntime() override {
    if (launch_sink == &sink_) launch_sink = nullptr;
    cudaSetDevice(index_);
    for (Stretch& stretch : stretches_) {
      stretch.staging.reset();
      cudaEventDestroy(stretch.end);
    }
    slices_.Clear();
    DropMoments();
    cudaStreamDestroy(stream_);
  }

  const DeviceFacts& facts() const override { return facts_; }
  Stream stream() const override { return stream_; }

  uint64_t FreeMemory() override {
    Adopt();
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    Check(cudaMemGetInfo(&free_bytes, &total_bytes), "measuring memory");
    return free_bytes;
  }
  void Adopt() override { Check(cudaSetDevice(index_), "choosing the device"); }
  // May wait for the device: what is gathered begins before.
  void* Allocate(size_t bytes) override {
    Adopt();
    Submit();
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, bytes == 0 ? 1 : bytes);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // the error is not left for the next call
      return nullptr;
    }
    Check(error, "allocating memory");
    return data;
  }
  void Free(void* data) override {
    Adopt();
    Submit();
    Check(cudaStreamSynchronize(stream_), "before freeing memory");
    Check(cudaFree(data), "freeing memory");
  }
  std::shared_ptr<void> AllocateHost(size_t bytes) override {
    Adopt();
    void* data = nullptr;
    if (cudaMallocHost(&data, bytes == 0 ? 1 : bytes) != cudaSuccess) {
      cudaGetLastError();
      return nullptr;
    }
    return {data, [](void* memory) { cudaFreeHost(memory); }};
  }
  void StageCopies(size_t bytes, int count) override {
    Adopt();
    const size_t whole =
        std::min(static_cast<size_t>(count) * SlicedCopies::Whole(bytes),
                 SlicedCopies::Whole(kMostStagedBytes));
    // Where memory is short, one step of two has slices.
    for (size_t owners = SlicedCopies::kOwners; owners > 0; --owners) {
      std::shared_ptr<void> memory = AllocateHost(owners * whole);
      if (memory == nullptr) continue;
      return slices_.Reserve(std::move(memory), whole, owners);
    }
    slices_.Reserve(nullptr, 0);
  }
  bool ReachPeer(int index) override {
    Adopt();
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, index_, index) != cudaSuccess ||
        can == 0) {
      cudaGetLastError();
      return false;
    }
    const cudaError_t error = cudaDeviceEnablePeerAccess(index, 0);
    if (error != cudaSuccess) cudaGetLastError();
    return error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled;
  }
  void CopyIn(const void* from, void* to, const ByteRows& rows) override {
    if (rows.bytes == 0 || rows.rows == 0) return;
    Submit();
    if (IsPacked(rows)) {
      const size_t bytes = rows.bytes * rows.rows;
      if (void* const staged = Stage(bytes); staged != nullptr) {
        from = std::memcpy(staged, from, bytes);
      } else if (!IsPinned(from) && slices_.Has(bytes, &Present())) {
        return slices_.CopyIn(static_cast<const std::byte*>(from),
                              static_cast<std::byte*>(to), bytes, stream_);
      }
    }
    // Rows that follow each other may be more than a pitch can say.
    Check(IsPacked(rows)
              ? cudaMemcpyAsync(to, from, rows.bytes * rows.rows,
                                cudaMemcpyHostToDevice, stream_)
              : cudaMemcpy2DAsync(to, rows.stride, from, rows.bytes, rows.bytes,
                                  rows.rows, cudaMemcpyHostToDevice, stream_),
          "copying to the device");
  }
  void CopyOut(const void* from, void* to, const ByteRows& rows) override {
    if (rows.bytes == 0 || rows.rows == 0) return;
    Submit();
    if (IsPacked(rows)) {
      const size_t bytes = rows.bytes * rows.rows;
      if (void* const staged = Stage(bytes); staged != nullptr) {
        Present().arriving.push_back({staged, to, bytes});
        to = staged;
      } else if (!IsPinned(to) && slices_.Has(bytes, &Present())) {
        return slices_.CopyOut(static_cast<const std::byte*>(from),
                               static_cast<std::byte*>(to), bytes, stream_);
      }
    }
    Check(IsPacked(rows)
              ? cudaMemcpyAsync(to, from, rows.bytes * rows.rows,
                                cudaMemcpyDeviceToHost, stream_)
              : cudaMemcpy2DAsync(to, rows.bytes, from, rows.stride, rows.bytes,
                                  rows.rows, cudaMemcpyDeviceToHost, stream_),
          "copying from the device");
  }
  void GatherLaunches(bool gather, uint64_t alike) override {
    Submit();
    launch_sink = gather ? &sink_ : nullptr;
    alike_ = alike;
  }
  void Submit() override {
    graphs_.Begin(sink_.list, alike_);
    sink_.list.Clear();
  }
  void StepAside() override { Submit(); }
  void DropGraphs() override {
    Adopt();
    graphs_.Drop();
  }
  const GraphCounts& graph_counts() const override { return graphs_.counts(); }
  void Sync() override {
    Submit();
    Check(cudaGetLastError(), "starting a kernel");
    for (Stretch& stretch : stretches_) slices_.HandOn(&stretch);
    Check(cudaStreamSynchronize(stream_), "running kernels");
    for (Stretch& stretch : stretches_) HandOn(stretch);
  }
  uint64_t Mark() override {
    Submit();
    Check(cudaGetLastError(), "starting a kernel");
    Check(cudaEventRecord(Present().end, stream_), "marking the stream");
    // The next stretch takes the place of the oldest one.
    if (marks_ + 1 >= kStretches) WaitFor(marks_ + 1 - kStretches);
    return marks_++;
  }
  bool HasReached(uint64_t mark) override {
    if (IsGone(mark)) return true;
    Check(cudaPeekAtLastError(), "starting a kernel");
    const cudaError_t state = cudaEventQuery(Of(mark).end);
    if (state == cudaErrorNotReady) {
      cudaGetLastError();  // CUDA keeps this answer as the last error
      return false;
    }
    Check(state, "running kernels");
    return true;
  }
  void WaitFor(uint64_t mark) override {
    if (IsGone(mark)) return;
    slices_.HandOn(&Of(mark));
    Check(cudaEventSynchronize(Of(mark).end), "running kernels");
    HandOn(Of(mark));
  }
  void MakeMoments(size_t count) override {
    Adopt();
    Submit();
    DropMoments();
    moments_.resize(count);
    for (cudaEvent_t& moment : moments_) {
      Check(cudaEventCreate(&moment), "making an event");
    }
  }
  void NoteMoment(size_t number) override {
    Submit();
    Check(cudaEventRecord(moments_[number], stream_), "noting the time");
  }
  int64_t NanosBetween(size_t from, size_t to) override {
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, moments_[from], moments_[to]),
          "reading the time");
    return static_cast<int64_t>(1e6 * static_cast<double>(milliseconds));
  }

 private:
  // A small copy to the host, which is handed on behind its arrival.
  struct Arriving {
    const void* staged;
    void* to;
    size_t bytes;
  };
  // What the stream is handed between two marks.
  struct Stretch {
    cudaEvent_t end = nullptr;
    std::shared_ptr<void> staging;
    size_t staged_bytes = 0;
    std::vector<Arriving> arriving;
  };
  // Two that have ended, and the present one.
  static constexpr uint64_t kStretches = 3;
  static constexpr size_t kStagedBytes = size_t{4} << 20;
  static constexpr size_t kMostStaged = size_t{1} << 20;  // of one copy

  Stretch& Of(uint64_t mark) { return stretches_[mark % kStretches]; }
  Stretch& Present() { return Of(marks_); }
  // Whether the mark was waited for, and another stretch has its place.
  bool IsGone(uint64_t mark) const { return mark + kStretches <= marks_; }

  // Hands on what has arrived, and lets the staging memory be used again.
  void HandOn(Stretch& stretch) {
    slices_.HandOn(&stretch);
    slices_.Release(&stretch);
    for (const Arriving& one : stretch.arriving) {
      std::memcpy(one.to, one.staged, one.bytes);
    }
    stretch.arriving.clear();
    stretch.staged_bytes = 0;
  }

  void DropMoments() {
    for (cudaEvent_t moment : moments_) cudaEventDestroy(moment);
    moments_.clear();
  }

  // Returns pinned memory until the present stretch is handed on, by which a
  // small copy does not wait for the stream; null: there is none left, or the
  // copy is large.
  void* Stage(size_t bytes) {
    if (bytes > kMostStaged) return nullptr;
    Stretch& stretch = Present();
    // At once, at the begin of the first step: later, an allocation might wait
    // for other devices.
    if (stretch.staging == nullptr) {
      for (Stretch& one : stretches_) {
        if (one.staging == nullptr) one.staging = AllocateHost(kStagedBytes);
      }
    }
    const size_t at = (stretch.staged_bytes + 15) / 16 * 16;
    if (stretch.staging == nullptr || at + bytes > kStagedBytes) return nullptr;
    stretch.staged_bytes = at + bytes;
    return static_cast<std::byte*>(stretch.staging.get()) + at;
  }

  // Whether the device reaches host memory by itself.
  static bool IsPinned(const void* host) {
    cudaPointerAttributes found = {};
    if (cudaPointerGetAttributes(&found, host) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    return found.type == cudaMemoryTypeHost;
  }
  static bool IsPacked(const ByteRows& rows) {
    return rows.rows == 1 || rows.stride == rows.bytes;
  }

  void Start(const LaunchList& list) override {
    // A kernel may begin while the one before it ends: each waits for its
    // inputs itself (Block::WaitForInputs).
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    EarlyBegins begins;
    for (const LaunchList::One& one : list.launches()) {
      const bool is_early = begins.Next(one);
      if (WorkOfOthers* const work = one.work(); work != nullptr) {
        work(stream_, list.ArgsOf(one));
        continue;
      }
      void* args[] = {const_cast<std::byte*>(list.ArgsOf(one))};
      cudaLaunchConfig_t config = {};
      config.gridDim = dim3(static_cast<unsigned>(one.blocks));
      config.blockDim = dim3(static_cast<unsigned>(one.threads));
      config.dynamicSmemBytes = one.shared_bytes;
      config.stream = stream_;
      config.attrs = &early;
      config.numAttrs = facts_.launches_early && is_early ? 1 : 0;
      Check(cudaLaunchKernelExC(&config, one.kernel, args),
            "starting a kernel");
    }
  }
  // A graph holds the arguments as they are now.
  std::shared_ptr<void> Capture(const LaunchList& list) override {
    Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          "beginning a graph");
    Start(list);
    cudaGraph_t graph = nullptr;
    Check(cudaStreamEndCapture(stream_, &graph), "ending a graph");
    cudaGraphExec_t made = nullptr;
    Check(cudaGraphInstantiate(&made, graph, 0), "making a graph");
    Check(cudaGraphDestroy(graph), "making a graph");
    return {static_cast<void*>(made), [](void* old) {
              // The driver keeps what still runs.
              cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(old));
            }};
  }
  void Replay(void* graph) override {
    Check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_),
          "starting a graph");
  }

  const int index_;
  const DeviceFacts facts_;
  cudaStream_t stream_ = nullptr;
  Stretch stretches_[kStretches];
  uint64_t marks_ = 0;  // so far: the present stretch's number
  SlicedCopies slices_;
  std::vector<cudaEvent_t> moments_;
  LaunchGraphs graphs_;
  LaunchSink sink_;
  uint64_t alike_ = 0;
};

}  // namespace

int Runtime::Count(std::string* error) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    *error = DriverError(driver);
  } else if (counted == cudaErrorNoDevice ||
             (counted == cudaSuccess && count == 0)) {
    *error = IndexError(0, 0);
  } else if (counted != cudaSuccess) {
    *error = cudaGetErrorString(counted);
  } else {
    return count;
  }
  return -1;
}

int Runtime::Find(const std::string& id, std::string* error) {
  // CUDA shows a slice to the process that names it before CUDA's first call,
  // and no other device: a process has one slice.
  if (id.rfind("MIG-", 0) == 0) {
    const char* const seen = std::getenv("CUDA_VISIBLE_DEVICES");
    if (seen == nullptr) {
      setenv("CUDA_VISIBLE_DEVICES", id.c_str(), 0);
    } else if (const std::string visible = seen;
               visible.rfind("MIG-", 0) == 0 && visible.rfind(id, 0) != 0) {
      *error = "slice " + id + " is not the one that the process sees: " +
               "CUDA_VISIBLE_DEVICES is " + visible;
      return -1;
    }
  }
  const int count = Count(error);
  if (count < 0) return -1;
  std::vector<std::string> ids;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp facts = {};
    cudaGetDeviceProperties(&facts, i);  // Open tells what is wrong with it
    ids.push_back(IdOf(facts.uuid.bytes));
  }
  return FindId(ids, id, error);
}

std::unique_ptr<Runtime> Runtime::Open(int index, std::string* error) {
  const int count = Count(error);
  if (count < 0) return nullptr;
  *error = IndexError(index, count);
  if (!error->empty()) return nullptr;
  const UnconfirmedAsked& unconfirmed = AskedUnconfirmed();
  *error = unconfirmed.error;
  if (!error->empty()) return nullptr;
  cudaDeviceProp facts;
  cudaError_t asked = cudaGetDeviceProperties(&facts, index);
  if (asked == cudaSuccess) {
    *error = ArchitectureError(index, facts.name, facts.major, facts.minor);
    if (!error->empty()) return nullptr;
    asked = cudaSetDevice(index);
  }
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (asked == cudaSuccess) asked = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (asked != cudaSuccess) {
    *error = "GPU " + std::to_string(index) + ": " + cudaGetErrorString(asked);
    return nullptr;
  }
  DeviceFacts device;
  device.index = index;
  device.asked = unconfirmed.set;
  device.name = facts.name;
  device.id = IdOf(facts.uuid.bytes);
  device.architecture =
      "sm_" + std::to_string(facts.major) + std::to_string(facts.minor);
  int kilohertz = 0;
  int bits = 0;
  if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, index) ==
          cudaSuccess &&
      cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, index) ==
          cudaSuccess) {
    device.bytes_per_second = 2e3 * kilohertz * bits / 8;  // two a clock
  }
  device.launches_early = facts.major >= 9 && CodeWaits();
  device.group_products = facts.major == 9 && facts.minor == 0 &&
                          device.asked.Has(Unconfirmed::kWgmma);
  device.free_memory = free_bytes;
  device.total_memory = total_bytes;
  return std::make_unique<GpuRuntime>(index, std::move(device));
}

}  // namespace sluice::kernels::cuda
