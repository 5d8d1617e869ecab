#ifndef SLUICE_TESTS_DEVICE_CUDA_DEVICE_OPS_H_
#define SLUICE_TESTS_DEVICE_CUDA_DEVICE_OPS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/device/backend.h"
#include "kernels/weight_type.h"
#include "tests/device/cuda/op_results.h"

namespace sluice::testing {

// Such numbers, norms of them, and products of those with weights near 1 are
// below the smallest normal number.
inline constexpr float kSubnormal = 1e-41f;

// The shapes that operations are tried on.
struct OpSizes {
  int64_t tokens = 1;    // T, of one sequence, or of one each
  int64_t context = 0;   // positions before them
  bool apart = false;    // a sequence each: the next one has fewer positions
  int32_t window = 0;    // of attention; 0: none
  int64_t hidden = 256;  // a multiple of 256
  int64_t mlp = 512;     // the same
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t head_dim = 32;  // a multiple of 32
  int64_t vocab = 300;
  int32_t experts = 8;
  int32_t per_token = 2;
  float largest = 2.0f;  // of the inputs
  // Weights have some random rows again and again: large ones are made fast.
  bool rows_repeat = false;
  // Weights are the same numbers in F32: what fast numerics are held against,
  // since neither weights nor activations are rounded then.
  bool widened = false;
};

// An operation on one backend with inputs of its own, which must outlive it.
class PreparedOp {
 public:
  virtual ~PreparedOp() = default;
  // What the step of CopyIn and Run has.
  virtual const StepInputs& step() const = 0;
  // Between BeginStep and EndStep: copies the inputs in, which an operation may
  // change, and has outputs be no numbers.
  virtual void CopyIn() = 0;
  // The same with zeros in place of the inputs.
  virtual void CopyZerosIn() = 0;
  // The operation on what the memory has.
  virtual void Run() = 0;
  // Behind CopyZerosIn: launches that make the inputs what CopyIn has them be,
  // others, and the operation, which a GPU may let overlap them.
  virtual void RunBehindOthers() = 0;
  // After EndStep: all outputs.
  virtual OpResults Results() = 0;
};

// What an operation gives in a step of its own.
OpResults ResultsOf(Backend& backend, PreparedOp& op);
// Whether it gives `want` in `times` further steps behind launches of others,
// before each of which it runs on zeros: what it keeps meanwhile is another
// run's. Launches that come again are a graph's.
bool RepeatsItself(Backend& backend, PreparedOp& op, const OpResults& want,
                   int times);

// One of Backend's operations.
struct DeviceOp {
  std::string name;
  // What keys and values the backend must have.
  kernels::WeightType kv_type = kernels::WeightType::kF32;
  // Bytes that one call reads and writes at least: what its time is held
  // against.
  double bytes = 0;
  std::function<std::unique_ptr<PreparedOp>(Backend& backend)> prepare;
};

// Every operation, with every type of weights, keys and values that it takes.
// The same sizes have the same inputs.
std::vector<DeviceOp> AllDeviceOps(const OpSizes& sizes);

// Whether fast numerics compute the operation in another way.
bool IsFastOp(const DeviceOp& op);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_DEVICE_CUDA_DEVICE_OPS_H_
