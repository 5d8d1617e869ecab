#ifndef SLUICE_COMMON_DEVICE_BACKEND_H_
#define SLUICE_COMMON_DEVICE_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/device/step_inputs.h"
#include "common/tensor/buffer.h"
#include "common/tensor/row_shards.h"
#include "kernels/reduction_tree.h"
#include "kernels/rope.h"
#include "kernels/route.h"
#include "kernels/views.h"

namespace sluice {

// Memory of a backend's device. Views into it (kernels::Matrix) are passed
// between operations; only the backend and its communicator look inside.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual float* data() = 0;
};

// A linear layer's weight [rows, cols], laid out as the backend likes it.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t cols() const = 0;
  virtual size_t bytes() const = 0;  // of device memory
};

// A weight as it was read: row-major, rows packed (see kernels/views.h).
struct HostWeight {
  kernels::WeightType type = kernels::WeightType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  Buffer data;
  Buffer scales;  // MXFP4 alone
};

// Some of one layer's experts, on the device.
struct ExpertWeights {
  int32_t first = 0;                             // id of gate_up[0]
  std::vector<std::unique_ptr<Weight>> gate_up;  // [2F, H]: gate rows, up rows
  std::vector<std::unique_ptr<Weight>> down;     // [H, F]
  std::unique_ptr<DeviceMemory> gate_up_bias;    // [n, 2F] or null
  std::unique_ptr<DeviceMemory> down_bias;       // [n, H] or null
  int32_t size() const { return static_cast<int32_t>(gate_up.size()); }
  size_t bytes() const {
    size_t total = 0;
    for (const auto& weight : gate_up) total += weight->bytes();
    for (const auto& weight : down) total += weight->bytes();
    return total;
  }
};

// Which experts the tokens of a step ask, [T, k] each on the device: ids,
// rising within a token, and the router's weights.
struct Routing {
  int32_t* ids = nullptr;
  float* weights = nullptr;
  int32_t per_token = 0;  // k
};

// Shapes and constants that do not change after load.
struct BackendShape {
  StepLimits limits;
  int64_t hidden_size = 0;
  float norm_eps = 0;
  // Attention heads of this rank. kv_heads[h]: which of the rank's own kv
  // heads query head h reads.
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  std::vector<int32_t> kv_heads;
  float attention_scale = 1;
  // RoPE: cos and sin of a position are [inv_freq.size()] each.
  std::vector<double> inv_freq;
  double rope_scale = 1;  // multiplies cos and sin
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalfSplit;
  // Sparse layers: how tokens choose experts, and the experts' activation
  // (see kernels/experts.h).
  kernels::RouterRule router;
  float swiglu_limit = 0;
};

// RMS norms [D] of every head of q and of k; null: none.
struct HeadNorms {
  const float* q = nullptr;
  const float* k = nullptr;
};

// One layer's keys and values on the device, and the KV group whose block
// tables it follows.
struct LayerKv {
  float* keys = nullptr;  // [num_blocks, num_kv_heads, kBlockTokens, head_dim]
  float* values = nullptr;
  int64_t num_blocks = 0;
  int32_t group = 0;
  int32_t window = 0;  // tokens seen, the query's own included; 0: all
};

// The device that one rank computes on. Operations are as large as is natural
// both on a CPU and on a GPU; layer code is a plain function over them and
// never reads a device value on the host. An interface although the CPU is
// its only child so far: the CUDA backend is the next one, with operations
// enqueued on a stream, and the boundary is dear to move later.
//
// Used by its rank's thread alone. Matrices are views of DeviceMemory with T
// rows, T being the step's num_tokens unless said otherwise; outputs do not
// overlap inputs. Within one backend operations take effect in call order.
class Backend {
 public:
  virtual ~Backend() = default;

  // Loading ---------------------------------------------------------------
  // `bytes` of device memory, uninitialised, 64-byte aligned.
  virtual std::unique_ptr<DeviceMemory> Allocate(size_t bytes) = 0;
  // Packs a weight for the products below and for Embed.
  virtual std::unique_ptr<Weight> Pack(HostWeight weight) = 0;

  // A step ----------------------------------------------------------------
  // `step` stays valid and unchanged until the next BeginStep.
  virtual void BeginStep(const StepInputs& step) = 0;
  // Host rows to the device and back.
  virtual void CopyIn(const float* rows, kernels::Matrix out) = 0;
  virtual void CopyOut(kernels::ConstMatrix x, float* rows) = 0;
  // x where the host can read it, once all operations before are done; valid
  // until the next call of any operation. The same memory on a CPU.
  virtual kernels::ConstMatrix ToHost(kernels::ConstMatrix x) = 0;

  // x[t] = table[token_ids[t]], widened to F32.
  virtual void Embed(const Weight& table, kernels::Matrix x) = 0;
  // y = RmsNorm(x, norm) weight^T + bias. norm [H] and bias F32 on the
  // device; no bias if null.
  virtual void NormLinear(kernels::ConstMatrix x, const float* norm,
                          const Weight& weight, const float* bias,
                          kernels::Matrix y) = 0;
  // The two halves of it, for a norm that several products read.
  virtual void Norm(kernels::ConstMatrix x, const float* norm,
                    kernels::Matrix y) = 0;
  virtual void Linear(kernels::ConstMatrix x, const Weight& weight,
                      const float* bias, kernels::Matrix y) = 0;
  // Norms every head of the q and k columns of qkv [T, (N + 2K) D] if asked,
  // rotates them in place by the tokens' positions, and stores k and v to the
  // step's slots.
  virtual void RopeStoreKv(kernels::Matrix qkv, const HeadNorms& norms,
                           const LayerKv& kv) = 0;
  // out [T, N D] = causal attention of qkv's q columns over what is stored;
  // sinks [N] or null (see kernels/attention.h).
  virtual void Attention(kernels::ConstMatrix qkv, const float* sinks,
                         const LayerKv& kv, kernels::Matrix out) = 0;
  // y[t, i] = Silu(x[t, i]) * x[t, i + F]; x [T, 2F], y [T, F].
  virtual void SiluMul(kernels::ConstMatrix x, kernels::Matrix y) = 0;
  // parts[i] [T, H] = this rank's finished sum of the tree's node
  // shards.nodes[i] of x weight^T.
  virtual void RowParallel(kernels::ConstMatrix x, const Weight& weight,
                           const RowShards& shards,
                           std::span<const kernels::Matrix> parts) = 0;
  // x += y.
  virtual void Add(kernels::ConstMatrix y, kernels::Matrix x) = 0;
  // x += RmsNorm(y + bias, norm); bias [H] or norm [H] is left out if null.
  virtual void AddNormed(kernels::ConstMatrix y, const float* bias,
                         const float* norm, kernels::Matrix x) = 0;
  // The experts that each token asks, by the shape's rule and logits [T, E];
  // correction [E] or null.
  virtual void Route(kernels::ConstMatrix logits, const float* correction,
                     const Routing& routing) = 0;
  // parts[i] [T, H] = the node nodes[i] of the tree over expert ids of rows x
  // (see kernels/experts.h); `experts` covers the nodes.
  virtual void ExpertNodes(kernels::ConstMatrix x, const Routing& routing,
                           const ExpertWeights& experts,
                           std::span<const kernels::TreeNode> nodes,
                           std::span<const kernels::Matrix> parts) = 0;
  // y [n, M] = RmsNorm of rows logits_rows[begin, begin + n) of x, times the
  // first M rows of head; n = y.rows, M = y.cols.
  virtual void Logits(kernels::ConstMatrix x, int32_t begin, const float* norm,
                      const Weight& head, kernels::Matrix y) = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_BACKEND_H_
