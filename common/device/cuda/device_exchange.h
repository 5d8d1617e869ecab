#ifndef SLUICE_COMMON_DEVICE_CUDA_DEVICE_EXCHANGE_H_
#define SLUICE_COMMON_DEVICE_CUDA_DEVICE_EXCHANGE_H_

#include <cstdint>
#include <string>

#include "kernels/cuda/runtime/runtime.h"

namespace sluice {

// Moves floats between the devices of a stage's ranks. It computes nothing: a
// sum would be in an order of its own.
class DeviceExchange {
 public:
  virtual ~DeviceExchange() = default;

  // Enqueues on `runtime`, of this process's rank `index`: every rank's `send`
  // [count] arrives in `recv` [ranks, count]. By every rank's thread, in the
  // same order, with the same count; both buffers stay until the stream has
  // passed.
  virtual void AllGather(int index, kernels::cuda::Runtime& runtime,
                         const float* send, float* recv, int64_t count) = 0;
  // The same behind what is gathered, and in no list of launches.
  virtual void AllGatherAtOnce(int index, kernels::cuda::Runtime& runtime,
                               const float* send, float* recv, int64_t count) {
    AllGather(index, runtime, send, recv, count);
  }

  // Whether AllGather waits for devices.
  virtual bool waits() const = 0;
  // Whether AllGather has its place in a list of launches that is gathered.
  virtual bool joins_lists() const { return false; }

  // Returns what is wrong between the ranks; empty: nothing. From any thread.
  virtual std::string Fault() { return {}; }
  // Lets devices that wait for others go on, with what they have: the process
  // is about to end. From any thread.
  virtual void Abort() {}
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_DEVICE_EXCHANGE_H_
