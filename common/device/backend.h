#ifndef SLUICE_COMMON_DEVICE_BACKEND_H_
#define SLUICE_COMMON_DEVICE_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/base/memory_node.h"
#include "common/base/status.h"
#include "common/core/step_trace.h"
#include "common/device/collective_times.h"
#include "common/device/layer_spec.h"
#include "common/device/memory.h"
#include "common/device/step_inputs.h"
#include "common/device/weight.h"
#include "common/sampling/sampler.h"
#include "common/tensor/row_shards.h"
#include "kernels/reduction_tree.h"
#include "kernels/route.h"
#include "kernels/state_mixer.h"

namespace sluice {

// A backend's properties, for loading, the handshake and people.
struct BackendInfo {
  std::string numerics;  // equal ids give equal bits
  std::string isa;
  // Of weights: devices of equal layouts that share the host's memory can use
  // each other's.
  std::string layout;
  int32_t threads = 0;  // that compute for the rank
  // Bytes that weights and KV cache may take: free when the backend was made,
  // less what a GPU keeps for the buffers of a step.
  uint64_t available_memory = 0;
  // Backends of one stage with the same number share that memory.
  int memory = 0;
  std::string device;  // for people: its name and id; empty: a CPU
  std::string gpu;     // the id alone; empty: a CPU
  ElementType kv_type = ElementType::kF32;
  // The NUMA node of the threads that compute, where they are pinned to CPUs
  // of one node.
  int memory_node = kAnyNode;
  // A step may begin before the one before it has ended: see SubmitStep.
  bool overlaps_steps = false;
  // Device addresses are host addresses, so no copies are needed.
  bool shares_host_memory = false;
};

struct StepTimes {
  CollectiveTimes collectives;  // zero for one rank
  TraceSpan sampling;           // the last Sample of the step
  uint32_t joins = 0;           // times that the rank's threads met
};

// The task on one logits row of the step.
struct RowTask {
  int32_t row = 0;  // index into StepInputs::logits_rows
  TokenTask task;   // its logits are empty
};

// Logits of some rows: this rank's columns [n, M], which are columns
// [first_column, first_column + M) of all ranks' together [n, V]. Only rank 0
// wants those; other ranks pass an empty `all`. One rank may give the same
// matrix twice.
struct LogitsOut {
  DeviceMatrix own;
  int64_t first_column = 0;
  DeviceMatrix all;
};

// Norms of every head of q and k, each of which may be none.
struct HeadNorms {
  NormSpec q;
  NormSpec k;
};

// x += RmsNorm(scale y + bias): what Add and AddRowParallel do with a layer's
// y.
struct ResidualAdd {
  const void* bias = nullptr;  // null: none
  NormSpec norm;
  DeviceMatrix x;
  float scale = 1;  // of y, before the bias
};

// A layer's router: logits = x weight^T + bias, then Route.
struct RouterSpec {
  const Weight& weight;
  const void* bias = nullptr;  // null: none
  const kernels::RouterRule& rule;
  const void* correction = nullptr;  // null: none
};

// Where the sum of all of a layer's experts goes: x += node + shared, node
// first.
struct ExpertAdd {
  std::span<const kernels::TreeNode> node;  // one, over all experts
  std::span<const DeviceMatrix> sum;        // room for it
  DeviceMatrix shared;                      // no data: none
  DeviceMatrix x;
};

// The device that one rank computes on. Operations are as large as is natural
// on a CPU and on a GPU, and take a model's constants as arguments. Between
// BeginStep and EndStep operations are enqueued: they take effect in call
// order, at EndStep or Sync at the latest. So until then the host reads only
// the results of EndStep (copies, results of Sample), and does not change host
// memory and spans that it has passed. Between steps, while loading, a copy is
// done when it returns.
//
// A fusion of operations is a backend's own affair and adds no method here: a
// backend may record what is enqueued in a step, and fuse neighbours.
//
// Used by the rank's thread alone. Matrices have T rows, the step's num_tokens,
// unless said otherwise; outputs do not overlap inputs. Embed, ReduceTree and
// Logits are collective: every rank of the stage calls them in the same order.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendInfo& info() const = 0;
  // As BackendInfo's, but what is free of it now: others use a GPU too. The
  // host's is not measured again.
  virtual uint64_t AvailableMemory() { return info().available_memory; }

  // Memory ----------------------------------------------------------------
  // Returns `bytes` of device memory, uninitialised, 64-byte aligned.
  virtual DeviceMemory Allocate(size_t bytes) = 0;
  // Frees memory of Allocate and Pack; called by DeviceMemory.
  virtual void Free(void* data) = 0;
  // Tells that these bytes of Allocate's memory hold nothing: the device may
  // have them back until they are written. Between steps; any thread.
  virtual void GiveBack(void* data, size_t bytes) {
    (void)data;
    (void)bytes;
  }
  // Packs a weight for the products below and for Embed. `parts`: its rows, in
  // at least one part, all with the same columns.
  virtual std::unique_ptr<Weight> Pack(std::vector<HostWeight> parts) = 0;
  // Makes RoPE's tables; before the first step.
  virtual RopeHandle AddRope(RopeSpec spec) = 0;
  // Copies packed rows of the matrix's type from the host to the device and
  // back. Within a step both may run as late as EndStep, in the order of the
  // calls, so a CopyIn may read rows that a later CopyOut writes; but a CopyIn
  // may read the host's rows at once, so none of what a CopyOut before writes.
  virtual void CopyIn(const void* rows, DeviceMatrix out) = 0;
  virtual void CopyOut(DeviceMatrix x, void* rows) = 0;
  // Before the first step: up to `count` such copies of up to `bytes` each
  // belong to every step. A backend may set memory aside for them.
  virtual void ExpectCopies([[maybe_unused]] size_t bytes,
                            [[maybe_unused]] int count) {}

  // A step ----------------------------------------------------------------
  // `step` stays valid and unchanged until EndStep.
  virtual void BeginStep(const StepInputs& step) = 0;
  // Returns when all enqueued operations are done. For results that the host
  // needs within a step: rows for remote experts.
  virtual void Sync() = 0;
  // The step is enqueued whole. If the backend overlaps steps, one more may
  // begin now, before EndStep; what is copied from the host and to it stays in
  // place until EndStep of its own step.
  virtual void SubmitStep() {}
  // Whether the oldest step that has not ended is done: EndStep does not wait.
  virtual bool StepIsDone() { return true; }
  // Returns when all operations of the oldest step that has not ended are done.
  virtual StepTimes EndStep() = 0;

  // x[t] = table[token_ids[t]] on every rank. Only one rank has the table, the
  // one that samples; others pass null.
  virtual void Embed(const Weight* table, DeviceMatrix x) = 0;
  // y = RmsNorm(x).
  virtual void Norm(DeviceMatrix x, const NormSpec& norm, DeviceMatrix y) = 0;
  // y = RmsNorm(x) weight^T + bias; bias null: none.
  virtual void Linear(DeviceMatrix x, const NormSpec& norm,
                      const Weight& weight, const void* bias,
                      DeviceMatrix y) = 0;
  // Norms every head of the q and k columns of qkv [T, (N + 2K) D] if the norms
  // exist, rotates them in place by the tokens' positions, and stores k and v
  // in the step's slots.
  virtual void RopeStoreKv(const AttentionSpec& spec, const NormSpec& q_norm,
                           const NormSpec& k_norm, DeviceMatrix qkv,
                           const LayerKv& kv) = 0;
  // out [T, N value_dim] = causal attention of qkv's q columns over the stored
  // keys and values; sinks [N] or null (see kernels/attention.h).
  virtual void Attention(const AttentionSpec& spec, DeviceMatrix qkv,
                         const void* sinks, const LayerKv& kv,
                         DeviceMatrix out) = 0;
  // RopeStoreKv, and Attention of what that leaves; qkv's contents are then of
  // no use. A backend may do both in one launch.
  virtual void RopeAttention(const AttentionSpec& spec, const HeadNorms& norms,
                             DeviceMatrix qkv, const void* sinks,
                             const LayerKv& kv, DeviceMatrix out) {
    RopeStoreKv(spec, norms.q, norms.k, qkv, kv);
    Attention(spec, qkv, sinks, kv, out);
  }
  // Latent attention, in the place of RopeStoreKv. Of rows [T, head_dim], which
  // begin with rope_dim elements, norms the elements behind these, rotates
  // these by the tokens' positions, both in place, and stores the rows in the
  // step's slots.
  virtual void StoreLatent(const AttentionSpec& spec, const NormSpec& norm,
                           DeviceMatrix rows, const LayerKv& kv) = 0;
  // out [T, N head_dim] = the queries that Attention reads: of head h of q [T,
  // N (nope_dim + rope_dim)] the last rope_dim elements, rotated, and behind
  // them the first nope_dim times part h^T of `keys`, [kv_rank, nope_dim].
  virtual void LatentQueries(const AttentionSpec& spec, DeviceMatrix q,
                             const Weight& keys, DeviceMatrix out) = 0;
  // The indexer's key of each token: norms rows [T, dim], rotates their first
  // elements, both in place, and stores the rows in the step's slots.
  virtual void StoreIndexKeys(const AttentionSpec& spec, const NormSpec& norm,
                              DeviceMatrix rows, const LayerKv& kv) = 0;
  // chosen [T, top_k] (INT32) = the positions that each token sees, rising, -1
  // behind the last. queries [T, heads dim], which are rotated in place, and
  // weights [T, heads].
  virtual void ChoosePositions(const AttentionSpec& spec, DeviceMatrix queries,
                               DeviceMatrix weights, const LayerKv& kv,
                               DeviceMatrix chosen) = 0;
  // Attention over the positions in chosen [T, top_k] alone; q [T, N D].
  virtual void ChosenAttention(const AttentionSpec& spec, DeviceMatrix q,
                               DeviceMatrix chosen, const LayerKv& kv,
                               DeviceMatrix out) = 0;
  // Head h's columns of y are those of x times part h^T of `heads`. All parts
  // have one shape [R, C]; x [T, N C], y [T, N R].
  virtual void HeadLinear(DeviceMatrix x, const Weight& heads,
                          DeviceMatrix y) = 0;
  // Maps every element of x.
  virtual void Map(const kernels::ElementMap& map, DeviceMatrix x) = 0;
  // y[t, i] *= x[t, i].
  virtual void Multiply(DeviceMatrix x, DeviceMatrix y) = 0;
  // y[t, i] *= sigmoid(gate[t]); gate [T, 1].
  virtual void GateRows(DeviceMatrix gate, DeviceMatrix y) = 0;
  // y[t, i] *= sigmoid(gate[t, i]).
  virtual void SigmoidGate(DeviceMatrix gate, DeviceMatrix y) = 0;
  // y = kernels::MixState of x, under the step's tables of the state's group;
  // scratch [T, mixer.scratch_columns()].
  virtual void MixState(const kernels::StateMixer& mixer,
                        const StateVectors& vectors, const LayerState& state,
                        DeviceMatrix x, DeviceMatrix scratch,
                        DeviceMatrix y) = 0;
  // Norms every head of `head_dim` columns of x in place, by itself.
  virtual void NormEachHead(DeviceMatrix x, int64_t head_dim,
                            const NormSpec& norm) = 0;
  // weights[t, j] *= scales[ids[t, j]]; scales [E].
  virtual void ScaleRouting(const DeviceRouting& routing, const void* scales,
                            int32_t num_experts) = 0;
  // The norms of q and k over all heads of all ranks: the sums of squares of
  // this rank's shards (kernels/rms_norm.h), ReduceTree of these, and the norm.
  virtual void HeadSquares(const kernels::HeadRuns& runs, DeviceMatrix qkv,
                           std::span<const kernels::TreeNode> nodes,
                           std::span<const DeviceMatrix> parts) = 0;
  virtual void NormBySquares(const SquaresNorm& norm, DeviceMatrix qkv) = 0;
  // y[t, i] = act(x[t, i]) * x[t, i + F]; x [T, 2F], y [T, F]. Of an activation
  // without a gate act(x[t, i]); x [T, F].
  virtual void Gate(const Activation& activation, DeviceMatrix x,
                    DeviceMatrix y) = 0;
  // parts[i] [T, H] = this rank's finished sum of the tree's node
  // shards.nodes[i] of x weight^T.
  virtual void RowParallel(DeviceMatrix x, const Weight& weight,
                           const RowShards& shards,
                           std::span<const DeviceMatrix> parts) = 0;
  // parts[i] [T, H] is this rank's finished sum of the tree's node nodes[i].
  // The ranks' nodes together cover leaves [0, num_leaves) once, each rank's
  // rising, in any order over the ranks. Every rank gets out [T, H] = the root.
  // `out` may be parts[0].
  virtual void ReduceTree(int32_t num_leaves,
                          std::span<const kernels::TreeNode> nodes,
                          std::span<const DeviceMatrix> parts,
                          DeviceMatrix out) = 0;
  // x += RmsNorm(y + bias); no bias if null.
  virtual void Add(DeviceMatrix y, const void* bias, const NormSpec& norm,
                   DeviceMatrix x) = 0;
  // y = Gate of Linear's result, which `both` [T, 2F or F] has room for. A
  // backend may do it at once, and leave `both` as it is.
  virtual void GatedLinear(DeviceMatrix x, const NormSpec& norm,
                           const Weight& weight, const void* bias,
                           const Activation& activation, DeviceMatrix both,
                           DeviceMatrix y) {
    Linear(x, norm, weight, bias, both);
    Gate(activation, both, y);
  }
  // Add of ReduceTree of RowParallel's `parts`, whose contents are then of no
  // use. A backend may do it at once. Collective.
  virtual void AddRowParallel(DeviceMatrix y, const Weight& weight,
                              const RowShards& shards,
                              std::span<const DeviceMatrix> parts,
                              const ResidualAdd& add) {
    RowParallel(y, weight, shards, parts);
    ReduceTree(shards.num_leaves, shards.nodes, parts, parts[0]);
    if (add.scale != 1) Map({.scale = add.scale}, parts[0]);
    Add(parts[0], add.bias, add.norm, add.x);
  }
  // Each token's experts, by `rule` and logits [T, E]; correction [E] or null.
  virtual void Route(DeviceMatrix logits, const kernels::RouterRule& rule,
                     const void* correction, const DeviceRouting& routing) = 0;
  // Norm, Linear of its result and Route of that. A backend may do it at once.
  virtual void NormRoute(DeviceMatrix x, const NormSpec& norm,
                         const RouterSpec& router, DeviceMatrix normed,
                         DeviceMatrix logits, const DeviceRouting& routing) {
    Norm(x, norm, normed);
    Linear(normed, NormSpec(), router.weight, router.bias, logits);
    Route(logits, router.rule, router.correction, routing);
  }
  // parts[i] [T, H] = the node nodes[i] of the tree over expert ids of rows x
  // (see kernels/experts.h); `experts` covers the nodes. T is x's.
  virtual void ExpertNodes(DeviceMatrix x, const DeviceRouting& routing,
                           const ExpertWeights& experts,
                           const Activation& activation,
                           std::span<const kernels::TreeNode> nodes,
                           std::span<const DeviceMatrix> parts) = 0;
  // ExpertNodes of one node, and Adds of `add`. A backend may do it at once.
  virtual void AddExperts(DeviceMatrix x, const DeviceRouting& routing,
                          const ExpertWeights& experts,
                          const Activation& activation, const ExpertAdd& add) {
    ExpertNodes(x, routing, experts, activation, add.node, add.sum);
    if (add.shared.data != nullptr) {
      Add(add.shared, /*bias=*/nullptr, NormSpec(), add.sum[0]);
    }
    Add(add.sum[0], /*bias=*/nullptr, NormSpec(), add.x);
  }
  // out = RmsNorm of rows logits_rows[begin, begin + n) of x, times the first
  // M rows of head.
  virtual void Logits(DeviceMatrix x, int32_t begin, const NormSpec& norm,
                      const Weight& head, const LogitsOut& out) = 0;
  // Runs `tasks`, which are on rows [begin, begin + logits.rows). Answers are
  // tokens with log probabilities, or INTERNAL for logits with a NaN or +inf.
  virtual void Sample(DeviceMatrix logits, int32_t begin,
                      std::span<const RowTask> tasks,
                      std::span<StatusOr<TokenResult>> answers) = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_BACKEND_H_
