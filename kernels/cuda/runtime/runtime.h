#ifndef SLUICE_KERNELS_CUDA_RUNTIME_RUNTIME_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_RUNTIME_H_

#include <cuda_device/device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/runtime/launch_graphs.h"
#include "kernels/cuda/runtime/unconfirmed.h"

namespace sluice::kernels::cuda {

// What a device is.
struct DeviceFacts {
  int index = 0;  // among those that the process sees
  std::string name;
  std::string id;               // GPU-8-4-4-4-12 hexadecimal digits
  std::string architecture;     // sm_90, or "emulated"
  bool launches_early = false;  // kernels begin before those ahead have ended
  bool group_products = false;  // as DeviceLimits::group_products
  UnconfirmedSet asked;         // as DeviceLimits::asked
  uint64_t free_memory = 0;     // bytes, when it was opened
  uint64_t total_memory = 0;    // bytes
  // What the memory's clock and bus allow; 0: not known.
  double bytes_per_second = 0;
};

// Rows in a device's memory, `stride` bytes apart; packed on the host.
struct ByteRows {
  size_t bytes = 0;  // of a row
  size_t rows = 1;
  size_t stride = 0;  // 1 row: any
};

// A device with one stream, on which copies and launches are done in order. Any
// error of the device behind Open ends the process with a message: what a
// stream did before it is not known. Used by one thread at a time. Implemented
// by nvcc/runtime.cc and tests/cuda_machine/runtime.cc.
class Runtime {
 public:
  // Opens device `index`. Null with `error` set to what is wrong: no driver,
  // one that is too old, no such device, or one that Sluice has no code for.
  static std::unique_ptr<Runtime> Open(int index, std::string* error);
  // Returns the number of devices that the process sees, at least 1; -1 with
  // `error` set, as Open.
  static int Count(std::string* error);
  // Returns the index of the device with an id, GPU-.. or MIG-.. (a slice), or
  // the one device whose id begins so; -1 with `error` set, as Open.
  static int Find(const std::string& id, std::string* error);
  virtual ~Runtime() = default;

  virtual const DeviceFacts& facts() const = 0;
  virtual Stream stream() const = 0;

  // Returns the bytes that are free now: other processes use the device too.
  virtual uint64_t FreeMemory() = 0;

  // The calling thread uses the device from here on.
  virtual void Adopt() = 0;
  // Returns `bytes`, 64-byte aligned; null if there are not so many.
  virtual void* Allocate(size_t bytes) = 0;
  // Frees memory behind what the stream has been handed.
  virtual void Free(void* data) = 0;
  // Returns host memory that copies reach fastest; null if there is no more.
  virtual std::shared_ptr<void> AllocateHost(size_t bytes) = 0;
  // Sets memory of that kind aside, before the first step: large copies of rows
  // that follow each other, up to `count` of up to `bytes` each until the next
  // mark or Sync, and as many behind that mark, go through it in slices, and
  // wait for no device. Without it, or where it is too small, they may wait. At
  // most kMostStagedBytes are set aside for either.
  virtual void StageCopies(size_t bytes, int count) = 0;
  static constexpr size_t kMostStagedBytes = size_t{256} << 20;
  // Lets this device's kernels use the memory of device `index`. False if they
  // cannot.
  virtual bool ReachPeer(int index) = 0;
  // Host memory is read or written until Sync returns, or WaitFor of a later
  // mark.
  virtual void CopyIn(const void* from, void* to, const ByteRows& rows) = 0;
  virtual void CopyOut(const void* from, void* to, const ByteRows& rows) = 0;
  // From here on this thread's launches on the stream are begun together, by
  // the next copy, Submit or Sync, and as a graph where they come again; until
  // it is called with false. Nothing is gathered at first.
  //
  // `alike`: of a list with work of others, all that decides what the list is,
  // and 0 if it cannot be known so: such a list is a graph where the number
  // comes again. Ranks whose work is common say the same number, since they
  // must begin it launch by launch, capture and replay it alike.
  virtual void GatherLaunches(bool gather, uint64_t alike = 0) = 0;
  // Whether this thread's launches on the stream are gathered.
  bool gathers_launches() const {
    return launch_sink != nullptr && launch_sink->stream == stream();
  }
  // Hands the stream work of others, with a copy of `args`: at once or, where
  // launches are gathered, in its place among them.
  template <typename Args>
  void Enqueue(WorkOfOthers* work, const Args& args) {
    if (!gathers_launches()) return work(stream(), &args);
    launch_sink->list.AddOf({.kernel = reinterpret_cast<const void*>(work)},
                            args);
  }
  // Begins what is gathered.
  virtual void Submit() = 0;
  // Submit, before this thread waits for another device's thread: a device goes
  // on by itself, an emulated one does here all that it was handed.
  virtual void StepAside() = 0;
  // Forgets graphs: before what their work of others belongs to is gone.
  virtual void DropGraphs() = 0;
  virtual const GraphCounts& graph_counts() const = 0;
  // Returns when all is done.
  virtual void Sync() = 0;
  // Marks the end of what the stream was handed so far. Marks rise by one; a
  // third one waits for the first of the two before.
  virtual uint64_t Mark() = 0;
  // Whether all before `mark` is done: WaitFor does not wait.
  virtual bool HasReached(uint64_t mark) = 0;
  virtual void WaitFor(uint64_t mark) = 0;
  // Makes `count` moments, numbered from 0, in place of those there were. May
  // wait for the device.
  virtual void MakeMoments(size_t count) = 0;
  // Begins what is gathered. The device notes when the stream comes here, in
  // place of what the moment was before.
  virtual void NoteMoment(size_t number) = 0;
  // Returns the device's time between two moments. The stream has come to both:
  // Sync, or WaitFor of a later mark, has returned.
  virtual int64_t NanosBetween(size_t from, size_t to) = 0;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_RUNTIME_H_
