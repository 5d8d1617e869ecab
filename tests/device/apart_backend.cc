#include "tests/device/apart_backend.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "common/tensor/buffer.h"

namespace sluice::testing {
namespace {

// What memory is full of that nobody has written: NaN, and no expert's id.
constexpr int kPoison = 0xff;

using Nodes = std::span<const kernels::TreeNode>;
using Matrices = std::span<const DeviceMatrix>;

// Allocations by their addresses on the device, each with the memory behind.
class ApartMemory {
 public:
  void* Allocate(size_t bytes) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t mapped = (bytes + page) / page * page;
    void* const data =
        ::mmap(nullptr, mapped, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SLUICE_CHECK(data != MAP_FAILED);
    Block& block = blocks_[reinterpret_cast<uintptr_t>(data)];
    block = {bytes, mapped, Buffer(bytes)};
    if (bytes > 0) std::memset(block.memory.data(), kPoison, bytes);
    return data;
  }
  void Free(void* data) {
    const auto found = blocks_.find(reinterpret_cast<uintptr_t>(data));
    SLUICE_CHECK(found != blocks_.end());
    ::munmap(data, found->second.mapped);
    blocks_.erase(found);
  }
  // The memory behind `bytes` at `address`; null stays null.
  void* Behind(const void* address, size_t bytes) {
    if (address == nullptr) return nullptr;
    const auto at = reinterpret_cast<uintptr_t>(address);
    auto found = blocks_.upper_bound(at);
    SLUICE_CHECK(found != blocks_.begin());
    --found;
    SLUICE_CHECK(at - found->first + bytes <= found->second.bytes);
    return found->second.memory.data() + (at - found->first);
  }

 private:
  struct Block {
    size_t bytes = 0;
    size_t mapped = 0;
    Buffer memory;
  };
  std::map<uintptr_t, Block> blocks_;
};

class ApartBackend final : public Backend {
 public:
  explicit ApartBackend(std::unique_ptr<Backend> cpu)
      : cpu_(std::move(cpu)), info_(cpu_->info()) {
    info_.shares_host_memory = false;
  }

  const BackendInfo& info() const override { return info_; }

  DeviceMemory Allocate(size_t bytes) override {
    return DeviceMemory(this, memory_.Allocate(bytes), bytes);
  }
  void Free(void* data) override {
    SLUICE_CHECK(!in_step_);  // operations that wait may need it
    memory_.Free(data);
  }
  std::unique_ptr<Weight> Pack(std::vector<HostWeight> parts) override {
    auto packed = cpu_->Pack(std::move(parts));
    for (WeightPart& part : packed->parts) part.data = Store(part.data);
    return packed;
  }
  RopeHandle AddRope(RopeSpec spec) override {
    SLUICE_CHECK(!stepped_);
    return cpu_->AddRope(std::move(spec));
  }
  void CopyIn(const void* rows, DeviceMatrix out) override {
    const auto run = [this, rows, out] { cpu_->CopyIn(rows, Behind(out)); };
    if (!in_step_) return run();
    read_later_.push_back(rows);
    Later(run);
  }
  void CopyOut(DeviceMatrix x, void* rows) override {
    // A step may write the rows that it has read: those stay until then.
    if (std::count(read_later_.begin(), read_later_.end(), rows) == 0) {
      std::memset(rows, kPoison, BytesOf(x.type) * x.rows * x.cols);
    }
    const auto run = [this, x, rows] { cpu_->CopyOut(Behind(x), rows); };
    in_step_ ? Later(run) : run();
  }

  void BeginStep(const StepInputs& step) override {
    SLUICE_CHECK(!in_step_);
    in_step_ = stepped_ = true;
    Later([this, &step] { cpu_->BeginStep(step); });
  }
  void Sync() override {
    for (const auto& operation : std::exchange(queue_, {})) operation();
  }
  StepTimes EndStep() override {
    SLUICE_CHECK(in_step_);
    Sync();
    in_step_ = false;
    read_later_.clear();
    return cpu_->EndStep();
  }

  void Embed(const Weight* table, DeviceMatrix x) override {
    Later([=, this] {
      if (table == nullptr) return cpu_->Embed(nullptr, Behind(x));
      cpu_->Embed(&*Behind(*table), Behind(x));
    });
  }
  void Norm(DeviceMatrix x, const NormSpec& norm, DeviceMatrix y) override {
    Later(
        [=, this] { cpu_->Norm(Behind(x), Behind(norm, x.cols), Behind(y)); });
  }
  void Linear(DeviceMatrix x, const NormSpec& norm, const Weight& weight,
              const void* bias, DeviceMatrix y) override {
    Later([=, this, &weight] {
      cpu_->Linear(Behind(x), Behind(norm, x.cols), *Behind(weight),
                   Vector(bias, y.cols), Behind(y));
    });
  }
  void RopeStoreKv(const AttentionSpec& spec, const NormSpec& q_norm,
                   const NormSpec& k_norm, DeviceMatrix qkv,
                   const LayerKv& kv) override {
    Later([=, this, &spec] {
      cpu_->RopeStoreKv(spec, Behind(q_norm, spec.head_dim),
                        Behind(k_norm, spec.head_dim), Behind(qkv),
                        Behind(spec, kv));
    });
  }
  void Attention(const AttentionSpec& spec, DeviceMatrix qkv, const void* sinks,
                 const LayerKv& kv, DeviceMatrix out) override {
    Later([=, this, &spec] {
      cpu_->Attention(spec, Behind(qkv), Vector(sinks, spec.num_heads),
                      Behind(spec, kv), Behind(out));
    });
  }
  void StoreLatent(const AttentionSpec& spec, const NormSpec& norm,
                   DeviceMatrix rows, const LayerKv& kv) override {
    Later([=, this, &spec] {
      cpu_->StoreLatent(spec, Behind(norm, spec.latent.kv_rank), Behind(rows),
                        Behind(spec, kv));
    });
  }
  void LatentQueries(const AttentionSpec& spec, DeviceMatrix q,
                     const Weight& keys, DeviceMatrix out) override {
    Later([=, this, &spec, &keys] {
      cpu_->LatentQueries(spec, Behind(q), *Behind(keys), Behind(out));
    });
  }
  void StoreIndexKeys(const AttentionSpec& spec, const NormSpec& norm,
                      DeviceMatrix rows, const LayerKv& kv) override {
    Later([=, this, &spec] {
      cpu_->StoreIndexKeys(spec, Behind(norm, rows.cols), Behind(rows),
                           Behind(spec, kv));
    });
  }
  void ChoosePositions(const AttentionSpec& spec, DeviceMatrix queries,
                       DeviceMatrix weights, const LayerKv& kv,
                       DeviceMatrix chosen) override {
    Later([=, this, &spec] {
      cpu_->ChoosePositions(spec, Behind(queries), Behind(weights),
                            Behind(spec, kv), Behind(chosen));
    });
  }
  void ChosenAttention(const AttentionSpec& spec, DeviceMatrix q,
                       DeviceMatrix chosen, const LayerKv& kv,
                       DeviceMatrix out) override {
    Later([=, this, &spec] {
      cpu_->ChosenAttention(spec, Behind(q), Behind(chosen), Behind(spec, kv),
                            Behind(out));
    });
  }
  void HeadLinear(DeviceMatrix x, const Weight& heads,
                  DeviceMatrix y) override {
    Later([=, this, &heads] {
      cpu_->HeadLinear(Behind(x), *Behind(heads), Behind(y));
    });
  }
  void Gate(const Activation& activation, DeviceMatrix x,
            DeviceMatrix y) override {
    Later([=, this] { cpu_->Gate(activation, Behind(x), Behind(y)); });
  }
  void Map(const kernels::ElementMap& map, DeviceMatrix x) override {
    Later([=, this] { cpu_->Map(map, Behind(x)); });
  }
  void Multiply(DeviceMatrix x, DeviceMatrix y) override {
    Later([=, this] { cpu_->Multiply(Behind(x), Behind(y)); });
  }
  void GateRows(DeviceMatrix gate, DeviceMatrix y) override {
    Later([=, this] { cpu_->GateRows(Behind(gate), Behind(y)); });
  }
  void SigmoidGate(DeviceMatrix gate, DeviceMatrix y) override {
    Later([=, this] { cpu_->SigmoidGate(Behind(gate), Behind(y)); });
  }
  void MixState(const kernels::StateMixer& mixer, const StateVectors& vectors,
                const LayerState& state, DeviceMatrix x, DeviceMatrix scratch,
                DeviceMatrix y) override {
    Later([=, this] {
      const kernels::StateShape& s = mixer.shape;
      LayerState behind = state;
      behind.data = memory_.Behind(
          state.data,
          sizeof(float) * static_cast<size_t>(state.num_blocks *
                                              s.block_floats(kBlockTokens)));
      const bool is_mamba = mixer.kind == kernels::StateMixer::Kind::kMamba2;
      cpu_->MixState(mixer,
                     {Vector(vectors.taps, s.taps * s.channels),
                      Vector(vectors.conv_bias, s.channels),
                      Vector(vectors.rate, s.num_heads),
                      Vector(vectors.time_bias, s.num_heads),
                      Vector(vectors.skip, s.num_heads),
                      Vector(vectors.norm, is_mamba ? y.cols : s.value_dim)},
                     behind, Behind(x), Behind(scratch), Behind(y));
    });
  }
  void NormEachHead(DeviceMatrix x, int64_t head_dim,
                    const NormSpec& norm) override {
    Later([=, this] {
      cpu_->NormEachHead(Behind(x), head_dim, Behind(norm, head_dim));
    });
  }
  void ScaleRouting(const DeviceRouting& routing, const void* scales,
                    int32_t num_experts) override {
    Later([=, this] {
      cpu_->ScaleRouting(Behind(routing), Vector(scales, num_experts),
                         num_experts);
    });
  }
  void HeadSquares(const kernels::HeadRuns& runs, DeviceMatrix qkv, Nodes nodes,
                   Matrices parts) override {
    Later([=, this, &runs] {
      cpu_->HeadSquares(runs, Behind(qkv), nodes, Behind(parts));
    });
  }
  void NormBySquares(const SquaresNorm& norm, DeviceMatrix qkv) override {
    Later([=, this] {
      SquaresNorm behind = norm;
      behind.squares = Behind(norm.squares);
      behind.q_weight = Vector(norm.q_weight, norm.q_cols);
      behind.k_weight = Vector(norm.k_weight, norm.k_cols);
      cpu_->NormBySquares(behind, Behind(qkv));
    });
  }
  void RowParallel(DeviceMatrix x, const Weight& weight,
                   const RowShards& shards, Matrices parts) override {
    Later([=, this, &weight, &shards] {
      cpu_->RowParallel(Behind(x), *Behind(weight), shards, Behind(parts));
    });
  }
  void ReduceTree(int32_t num_leaves, Nodes nodes, Matrices parts,
                  DeviceMatrix out) override {
    Later([=, this] {
      cpu_->ReduceTree(num_leaves, nodes, Behind(parts), Behind(out));
    });
  }
  void Add(DeviceMatrix y, const void* bias, const NormSpec& norm,
           DeviceMatrix x) override {
    Later([=, this] {
      cpu_->Add(Behind(y), Vector(bias, y.cols), Behind(norm, y.cols),
                Behind(x));
    });
  }
  void Route(DeviceMatrix logits, const kernels::RouterRule& rule,
             const void* correction, const DeviceRouting& routing) override {
    Later([=, this] {
      cpu_->Route(Behind(logits), rule, Vector(correction, logits.cols),
                  Behind(routing));
    });
  }
  void ExpertNodes(DeviceMatrix x, const DeviceRouting& routing,
                   const ExpertWeights& experts, const Activation& activation,
                   Nodes nodes, Matrices parts) override {
    Later([=, this, &experts] {
      ExpertWeights behind;
      behind.first = experts.first;
      for (const auto& weight : experts.gate_up) {
        behind.gate_up.push_back(Behind(*weight));
      }
      for (const auto& weight : experts.down) {
        behind.down.push_back(Behind(*weight));
      }
      behind.gate_up_bias = Behind(experts.gate_up_bias);
      behind.down_bias = Behind(experts.down_bias);
      cpu_->ExpertNodes(Behind(x), Behind(routing), behind, activation, nodes,
                        Behind(parts));
    });
  }
  void Logits(DeviceMatrix x, int32_t begin, const NormSpec& norm,
              const Weight& head, const LogitsOut& out) override {
    Later([=, this, &head] {
      cpu_->Logits(Behind(x), begin, Behind(norm, x.cols), *Behind(head),
                   {Behind(out.own), out.first_column, Behind(out.all)});
    });
  }
  void Sample(DeviceMatrix logits, int32_t begin,
              std::span<const RowTask> tasks,
              std::span<StatusOr<TokenResult>> answers) override {
    std::fill(answers.begin(), answers.end(),
              StatusOr<TokenResult>(Internal("read before the step's end")));
    Later([=, this] { cpu_->Sample(Behind(logits), begin, tasks, answers); });
  }

 private:
  void Later(std::function<void()> operation) {
    SLUICE_CHECK(in_step_);
    queue_.push_back(std::move(operation));
  }

  DeviceMemory Store(const DeviceMemory& packed) {
    if (packed.bytes() == 0) return DeviceMemory();
    DeviceMemory stored = Allocate(packed.bytes());
    std::memcpy(memory_.Behind(stored.data(), packed.bytes()), packed.data(),
                packed.bytes());
    return stored;
  }

  // The memory behind addresses: what the CPU's backend takes.
  const void* Vector(const void* vector, int64_t elements) {
    return memory_.Behind(vector, sizeof(float) * elements);
  }
  DeviceMemory Behind(const DeviceMemory& memory) {
    return DeviceMemory(nullptr, memory_.Behind(memory.data(), memory.bytes()),
                        memory.bytes());
  }
  DeviceMatrix Behind(DeviceMatrix x) {
    const int64_t elements =
        x.rows == 0 || x.cols == 0 ? 0 : (x.rows - 1) * x.stride + x.cols;
    x.data = memory_.Behind(x.data, BytesOf(x.type) * elements);
    return x;
  }
  Matrices Behind(Matrices all) {
    behind_.clear();
    for (const DeviceMatrix& x : all) behind_.push_back(Behind(x));
    return behind_;
  }
  NormSpec Behind(const NormSpec& norm, int64_t elements) {
    return {Vector(norm.weight, elements), norm.eps, norm.is_layer_norm,
            Vector(norm.bias, elements)};
  }
  LayerKv Behind(const AttentionSpec& spec, LayerKv kv) {
    const size_t bytes =
        KvBytesOf(kv.type, kv.num_blocks * kBlockTokens * spec.num_kv_heads *
                               spec.head_dim);
    kv.keys = memory_.Behind(kv.keys, bytes);
    kv.values = memory_.Behind(kv.values, bytes);
    kv.index_keys = memory_.Behind(
        kv.index_keys, KvBytesOf(kv.type, kv.num_blocks * kBlockTokens *
                                              spec.latent.index.head_dim));
    return kv;
  }
  DeviceRouting Behind(const DeviceRouting& routing) {
    return {Behind(routing.ids), Behind(routing.weights)};
  }
  std::unique_ptr<Weight> Behind(const Weight& weight) {
    auto behind = std::make_unique<Weight>();
    behind->rows = weight.rows;
    behind->cols = weight.cols;
    for (const WeightPart& part : weight.parts) {
      behind->parts.push_back({part.type, part.rows, Behind(part.data)});
    }
    return behind;
  }

  const std::unique_ptr<Backend> cpu_;
  BackendInfo info_;
  ApartMemory memory_;
  bool in_step_ = false;
  bool stepped_ = false;
  std::vector<std::function<void()>> queue_;
  std::vector<const void*> read_later_;  // rows of this step's CopyIn
  std::vector<DeviceMatrix> behind_;
};

}  // namespace

StatusOr<std::vector<std::unique_ptr<Backend>>> MakeApartBackends(
    const BackendOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(auto backends, MakeBackends(options));
  for (auto& backend : backends) {
    backend = std::make_unique<ApartBackend>(std::move(backend));
  }
  return backends;
}

}  // namespace sluice::testing
