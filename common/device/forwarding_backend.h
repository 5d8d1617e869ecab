#ifndef SLUICE_COMMON_DEVICE_FORWARDING_BACKEND_H_
#define SLUICE_COMMON_DEVICE_FORWARDING_BACKEND_H_

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/device/backend.h"

namespace sluice {

// A backend that is another one, for classes that watch some operations. As
// thread-safe as the other one.
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner)
      : inner_(std::move(inner)) {}

  const BackendInfo& info() const override { return inner_->info(); }
  uint64_t AvailableMemory() override { return inner_->AvailableMemory(); }
  DeviceMemory Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  void Free(void* data) override { inner_->Free(data); }
  void GiveBack(void* data, size_t bytes) override {
    inner_->GiveBack(data, bytes);
  }
  std::unique_ptr<Weight> Pack(std::vector<HostWeight> parts) override {
    return inner_->Pack(std::move(parts));
  }
  RopeHandle AddRope(RopeSpec spec) override {
    return inner_->AddRope(std::move(spec));
  }
  void CopyIn(const void* rows, DeviceMatrix out) override {
    inner_->CopyIn(rows, out);
  }
  void CopyOut(DeviceMatrix x, void* rows) override {
    inner_->CopyOut(x, rows);
  }
  void ExpectCopies(size_t bytes, int count) override {
    inner_->ExpectCopies(bytes, count);
  }
  void BeginStep(const StepInputs& step) override { inner_->BeginStep(step); }
  void Sync() override { inner_->Sync(); }
  void SubmitStep() override { inner_->SubmitStep(); }
  bool StepIsDone() override { return inner_->StepIsDone(); }
  StepTimes EndStep() override { return inner_->EndStep(); }
  void Embed(const Weight* table, DeviceMatrix x) override {
    inner_->Embed(table, x);
  }
  void Norm(DeviceMatrix x, const NormSpec& norm, DeviceMatrix y) override {
    inner_->Norm(x, norm, y);
  }
  void Linear(DeviceMatrix x, const NormSpec& norm, const Weight& weight,
              const void* bias, DeviceMatrix y) override {
    inner_->Linear(x, norm, weight, bias, y);
  }
  void RopeStoreKv(const AttentionSpec& spec, const NormSpec& q_norm,
                   const NormSpec& k_norm, DeviceMatrix qkv,
                   const LayerKv& kv) override {
    inner_->RopeStoreKv(spec, q_norm, k_norm, qkv, kv);
  }
  void Attention(const AttentionSpec& spec, DeviceMatrix qkv, const void* sinks,
                 const LayerKv& kv, DeviceMatrix out) override {
    inner_->Attention(spec, qkv, sinks, kv, out);
  }
  void StoreLatent(const AttentionSpec& spec, const NormSpec& norm,
                   DeviceMatrix rows, const LayerKv& kv) override {
    inner_->StoreLatent(spec, norm, rows, kv);
  }
  void LatentQueries(const AttentionSpec& spec, DeviceMatrix q,
                     const Weight& keys, DeviceMatrix out) override {
    inner_->LatentQueries(spec, q, keys, out);
  }
  void StoreIndexKeys(const AttentionSpec& spec, const NormSpec& norm,
                      DeviceMatrix rows, const LayerKv& kv) override {
    inner_->StoreIndexKeys(spec, norm, rows, kv);
  }
  void ChoosePositions(const AttentionSpec& spec, DeviceMatrix queries,
                       DeviceMatrix weights, const LayerKv& kv,
                       DeviceMatrix chosen) override {
    inner_->ChoosePositions(spec, queries, weights, kv, chosen);
  }
  void ChosenAttention(const AttentionSpec& spec, DeviceMatrix q,
                       DeviceMatrix chosen, const LayerKv& kv,
                       DeviceMatrix out) override {
    inner_->ChosenAttention(spec, q, chosen, kv, out);
  }
  void HeadLinear(DeviceMatrix x, const Weight& heads,
                  DeviceMatrix y) override {
    inner_->HeadLinear(x, heads, y);
  }
  void Gate(const Activation& activation, DeviceMatrix x,
            DeviceMatrix y) override {
    inner_->Gate(activation, x, y);
  }
  void Map(const kernels::ElementMap& map, DeviceMatrix x) override {
    inner_->Map(map, x);
  }
  void SigmoidGate(DeviceMatrix gate, DeviceMatrix y) override {
    inner_->SigmoidGate(gate, y);
  }
  void MixState(const kernels::StateMixer& mixer, const StateVectors& vectors,
                const LayerState& state, DeviceMatrix x, DeviceMatrix scratch,
                DeviceMatrix y) override {
    inner_->MixState(mixer, vectors, state, x, scratch, y);
  }
  void Multiply(DeviceMatrix x, DeviceMatrix y) override {
    inner_->Multiply(x, y);
  }
  void GateRows(DeviceMatrix gate, DeviceMatrix y) override {
    inner_->GateRows(gate, y);
  }
  void NormEachHead(DeviceMatrix x, int64_t head_dim,
                    const NormSpec& norm) override {
    inner_->NormEachHead(x, head_dim, norm);
  }
  void ScaleRouting(const DeviceRouting& routing, const void* scales,
                    int32_t num_experts) override {
    inner_->ScaleRouting(routing, scales, num_experts);
  }
  void HeadSquares(const kernels::HeadRuns& runs, DeviceMatrix qkv,
                   std::span<const kernels::TreeNode> nodes,
                   std::span<const DeviceMatrix> parts) override {
    inner_->HeadSquares(runs, qkv, nodes, parts);
  }
  void NormBySquares(const SquaresNorm& norm, DeviceMatrix qkv) override {
    inner_->NormBySquares(norm, qkv);
  }
  void RowParallel(DeviceMatrix x, const Weight& weight,
                   const RowShards& shards,
                   std::span<const DeviceMatrix> parts) override {
    inner_->RowParallel(x, weight, shards, parts);
  }
  void ReduceTree(int32_t num_leaves, std::span<const kernels::TreeNode> nodes,
                  std::span<const DeviceMatrix> parts,
                  DeviceMatrix out) override {
    inner_->ReduceTree(num_leaves, nodes, parts, out);
  }
  void Add(DeviceMatrix y, const void* bias, const NormSpec& norm,
           DeviceMatrix x) override {
    inner_->Add(y, bias, norm, x);
  }
  void Route(DeviceMatrix logits, const kernels::RouterRule& rule,
             const void* correction, const DeviceRouting& routing) override {
    inner_->Route(logits, rule, correction, routing);
  }
  void ExpertNodes(DeviceMatrix x, const DeviceRouting& routing,
                   const ExpertWeights& experts, const Activation& activation,
                   std::span<const kernels::TreeNode> nodes,
                   std::span<const DeviceMatrix> parts) override {
    inner_->ExpertNodes(x, routing, experts, activation, nodes, parts);
  }
  void Logits(DeviceMatrix x, int32_t begin, const NormSpec& norm,
              const Weight& head, const LogitsOut& out) override {
    inner_->Logits(x, begin, norm, head, out);
  }
  void Sample(DeviceMatrix logits, int32_t begin,
              std::span<const RowTask> tasks,
              std::span<StatusOr<TokenResult>> answers) override {
    inner_->Sample(logits, begin, tasks, answers);
  }

 protected:
  Backend& inner() { return *inner_; }
  const Backend& inner() const { return *inner_; }

 private:
  const std::unique_ptr<Backend> inner_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_FORWARDING_BACKEND_H_
