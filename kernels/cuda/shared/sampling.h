#ifndef SLUICE_KERNELS_CUDA_SHARED_SAMPLING_H_
#define SLUICE_KERNELS_CUDA_SHARED_SAMPLING_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/sampling.h"

namespace sluice::kernels::cuda {

// Sampling on a device, with the tokens and the log probabilities of
// common/sampling/sampler.h, whose nine steps it takes in order. Structures
// are copied to the device as they are.

inline constexpr int kMostTopLogits = 20;

// Some entries in device memory.
template <typename T>
struct DeviceList {
  const T* data = nullptr;
  int32_t count = 0;
};
struct TokenValue {
  int32_t token;
  float value;
};
struct TokenRange {  // [begin, end)
  int32_t begin;
  int32_t end;
};
struct TokenTimes {
  int32_t token;
  int32_t generated;
};

// Changes of the logits before a draw: steps 1 to 4. Tokens of a list differ.
struct LogitEdits {
  DeviceList<TokenValue> biases;
  DeviceList<TokenRange> mask;  // rising ranges
  DeviceList<int32_t> stops;    // excluded tokens
  DeviceList<TokenTimes> counts;
  bool masked = false;    // by `mask`
  bool excludes = false;  // the ranges; else all tokens between them
  float repetition = 1;
  float frequency = 0;
  float presence = 0;
  bool any = false;
};

// The work on one row.
struct SampleTask {
  const float* logits = nullptr;  // of the device, [vocab]
  bool draws = false;             // else `token` is described
  bool greedy = false;
  bool sums_all = false;  // the draw needs the sum over all tokens
  bool sums_raw = false;  // log probabilities need a sum of their own
  int32_t token = 0;
  int32_t num_top = -1;  // below 0: no log probabilities
  LogitEdits edits;
  float scale = 1;    // 1 / temperature
  int32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;
  double heavy_depth = 0;  // logits so far below the largest weigh < min_p
  double share_unit = 0;   // weights count in whole multiples of its inverse
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t position = 0;
  int32_t* drawn = nullptr;  // of the device: gets the token, too, or 0
};

// What became of it.
struct SampleResult {
  enum class Outcome : int32_t { kToken, kNotFinite, kAllMasked };
  Outcome outcome = Outcome::kToken;
  int32_t token = 0;  // kNotFinite: the first whose logit is no number
  float logprob = 0;  // kNotFinite: that logit
  int32_t rank = 0;
  int32_t num_top = 0;
  int32_t top_tokens[kMostTopLogits] = {};  // likeliest first
  float top_logprobs[kMostTopLogits] = {};
};

// Device memory for `rows` rows at once.
int64_t SampleBytes(int64_t rows, int64_t vocab);

// Tasks of the device, and whether any has edits, or needs a sum.
struct SampleTasks {
  const SampleTask* tasks = nullptr;
  int64_t rows = 0;
  bool edits = true;
  bool sums = true;
};

// Runs tasks into results [rows]. `memory`: SampleBytes, 64-byte aligned.
void Sample(Stream stream, const SampleTasks& tasks, int64_t vocab,
            void* memory, SampleResult* results);

// tokens[t] = drawn[-1 - tokens[t]] where tokens[t] is below 0, of the device.
void TakeDrawn(Stream stream, const int32_t* drawn, int64_t count,
               int32_t* tokens);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_SAMPLING_H_
