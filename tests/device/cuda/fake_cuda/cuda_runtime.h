#ifndef SLUICE_TESTS_DEVICE_CUDA_FAKE_CUDA_CUDA_RUNTIME_H_
#define SLUICE_TESTS_DEVICE_CUDA_FAKE_CUDA_CUDA_RUNTIME_H_

#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

// CUDA's calls of sliced_copies.h, with a stream that does as little as it may:
// nothing before an event that is waited for.

using cudaError_t = int;
inline constexpr cudaError_t cudaSuccess = 0;
inline const char* cudaGetErrorString(cudaError_t) { return ""; }
inline const char* cudaGetErrorName(cudaError_t) { return ""; }

struct FakeStream {
  std::vector<std::function<void()>> work;
  size_t done = 0;
};
using cudaStream_t = FakeStream*;
struct FakeEvent {
  FakeStream* stream = nullptr;
  size_t end = 0;  // of the stream's work
};
using cudaEvent_t = FakeEvent*;
inline constexpr unsigned cudaEventDisableTiming = 2;
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new FakeEvent;
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  *event = {stream, stream->work.size()};
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  FakeStream* const stream = event->stream;
  while (stream->done < event->end) stream->work[stream->done++]();
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                                   cudaMemcpyKind, cudaStream_t stream) {
  stream->work.push_back([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

#endif  // SLUICE_TESTS_DEVICE_CUDA_FAKE_CUDA_CUDA_RUNTIME_H_
