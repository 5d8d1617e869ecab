#include "common/device/cuda/cuda_backend.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/device/cpu/weight_products.h"
#include "common/device/cuda/cuda_attention.h"
#include "common/device/cuda/cuda_memory.h"
#include "common/device/cuda/cuda_products.h"
#include "common/device/cuda/cuda_sampler.h"
#include "common/device/cuda/route_plans.h"
#include "common/device/cuda/step_memory.h"
#include "common/device/cuda/weight_upload.h"
#include "common/tensor/weight_format.h"
#include "kernels/block_pack.h"
#include "kernels/cuda/experts.h"
#include "kernels/cuda/fast/norm.h"
#include "kernels/cuda/fast/norm_route.h"
#include "kernels/cuda/fast/weight_layout.h"
#include "kernels/cuda/shared/gather.h"
#include "kernels/cuda/shared/route.h"
#include "kernels/cuda/shared/row_ops.h"

namespace sluice {
namespace {

using kernels::ConstMatrix;
using kernels::Matrix;
namespace cuda = kernels::cuda;

// What a fast backend's weights are: kernels/cuda/fast/weight_layout.h.
constexpr const char* kTileLayout = "cuda-tiles-2";
// Of the free memory, what is left to the buffers of a step.
constexpr uint64_t kReserveShare = 10;

Matrix View(const DeviceMatrix& x) {
  SLUICE_CHECK(x.type == ElementType::kF32);
  return {static_cast<float*>(x.data), x.rows, x.cols, x.stride};
}
const float* Floats(const void* vector) {
  return static_cast<const float*>(vector);
}
NormedRow RowOf(const DeviceMatrix& x, const NormSpec& norm) {
  return {View(x), nullptr, Floats(norm.weight), norm.eps};
}

std::span<const Matrix> View(std::span<const DeviceMatrix> parts,
                             std::vector<Matrix>& views) {
  views.clear();
  for (const DeviceMatrix& part : parts) views.push_back(View(part));
  return views;
}

// In the vectors' memory.
kernels::ExpertsView View(const ExpertWeights& experts,
                          const Activation& activation,
                          std::vector<kernels::ExpertWeight>& gate_up,
                          std::vector<kernels::ExpertWeight>& down) {
  gate_up.clear();
  down.clear();
  for (const auto& weight : experts.gate_up) gate_up.push_back(ViewOf(*weight));
  for (const auto& weight : experts.down) down.push_back(ViewOf(*weight));
  kernels::ExpertsView view = {experts.first,
                               gate_up,
                               down,
                               Floats(experts.gate_up_bias.data()),
                               Floats(experts.down_bias.data()),
                               activation};
  return view;
}

ElementType ElementOf(kernels::WeightType kv_type) {
  if (kv_type == kernels::WeightType::kBf16) return ElementType::kBf16;
  if (kv_type == kernels::WeightType::kQ8_0) return ElementType::kQ8_0;
  SLUICE_CHECK(kv_type == kernels::WeightType::kF32);
  return ElementType::kF32;
}

cuda::ByteRows RowsOf(const DeviceMatrix& x) {
  return {BytesOf(x.type) * static_cast<size_t>(x.cols),
          static_cast<size_t>(x.rows),
          BytesOf(x.type) * static_cast<size_t>(x.stride)};
}

BackendInfo InfoOf(const CudaBackendOptions& options) {
  const cuda::DeviceFacts& device = options.runtime->facts();
  BackendInfo info;
  // No GPU has shown that those products' bits are the others'.
  const std::string products = device.group_products ? "w" : "";
  info.numerics = options.fast
                      ? CudaFastNumerics(device.architecture + products)
                      : std::string(kF32Canonical);
  info.isa = device.architecture;
  info.layout = options.fast ? kTileLayout : kernels::kPackedLayout;
  info.threads = 1;
  info.available_memory = AvailableOf(device);
  info.kv_type = ElementOf(options.kv_type);
  info.memory = options.memory;
  info.device = NameOf(device);
  info.gpu = device.id;
  info.overlaps_steps = options.communicator->overlaps_steps();
  return info;
}

void LogLists(const std::string& device, const cuda::GraphCounts& lists) {
  LogInfo(device, ": of a step's lists of launches ", lists.started,
          " were begun one by one, ", lists.captured, " became graphs, ",
          lists.replayed, " were replayed");
}

constexpr kernels::TreeNode kOneLeaf = {0, 1};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(CudaBackendOptions options)
      : info_(InfoOf(options)),
        fast_(options.fast),
        alone_(options.alone),
        runtime_(std::move(options.runtime)),
        stream_(runtime_->stream()),
        inputs_(runtime_.get()),
        products_(runtime_.get(), fast_),
        upload_(runtime_.get()),
        communicator_(std::move(options.communicator)),
        sampler_(runtime_.get()),
        scratch_(runtime_.get()),
        attention_(runtime_.get(), &inputs_, options.kv_type, fast_),
        experts_(runtime_.get()),
        plans_(runtime_.get()) {}
  ~CudaBackend() override {
    runtime_->Sync();
    runtime_->DropGraphs();
    LogLists(info_.device, runtime_->graph_counts());
  }

  const BackendInfo& info() const override { return info_; }
  uint64_t AvailableMemory() override {
    upload_.Release();
    const uint64_t free = runtime_->FreeMemory();
    return free - std::min(free, ReserveOf(runtime_->facts()));
  }

  DeviceMemory Allocate(size_t bytes) override {
    return DeviceMemory(this, AllocateOrDie(*runtime_, bytes), bytes);
  }
  void Free(void* data) override {
    inputs_.Forget(data);
    runtime_->Free(data);
  }
  std::unique_ptr<Weight> Pack(std::vector<HostWeight> parts) override {
    auto weight = std::make_unique<Weight>();
    weight->cols = parts[0].cols;
    for (HostWeight& part : parts) {
      SLUICE_CHECK(part.cols == weight->cols);
      WeightPart& packed = weight->parts.emplace_back();
      packed.type = part.type;
      packed.rows = part.rows;
      weight->rows += part.rows;
      packed.data = Upload(std::move(part));
    }
    return weight;
  }
  RopeHandle AddRope(RopeSpec spec) override {
    return inputs_.AddRope(std::move(spec));
  }
  void CopyIn(const void* rows, DeviceMatrix out) override {
    plans_.Forget();
    communicator_->NoteCopy();
    runtime_->CopyIn(rows, out.data, RowsOf(out));
    if (!in_step_) runtime_->Sync();
  }
  void CopyOut(DeviceMatrix x, void* rows) override {
    communicator_->NoteCopy();
    runtime_->CopyOut(x.data, rows, RowsOf(x));
    if (!in_step_) runtime_->Sync();
  }
  void ExpectCopies(size_t b, int n) override { runtime_->StageCopies(b, n); }

  void BeginStep(const StepInputs& step) override {
    runtime_->Adopt();
    upload_.Release();
    in_step_ = true;
    most_rows_ = static_cast<int64_t>(step.positions.size());
    sampling_start_ns_ = 0;
    inputs_.Begin(step);
    sampler_.Begin(std::ssize(step.logits_rows));
    communicator_->BeginStep(inputs_.is_new());
    // A step of a token for each sequence comes again, a prompt's does not. In
    // a new one ranks meet, which would cut its list.
    runtime_->GatherLaunches(
        inputs_.is_decode() && (alone_ || !inputs_.is_new()), inputs_.alike());
    inputs_.Place();
  }
  void Sync() override {
    communicator_->NoteCopy();
    runtime_->Sync();
    communicator_->OnSynced(/*goes_on=*/false);
    sampler_.Collect(sampler_.pending());
    for (Submitted& step : submitted_) step.batches = 0;
  }
  void SubmitStep() override {
    if (communicator_->step_is_cut()) inputs_.NoteCut();
    runtime_->GatherLaunches(false);
    in_step_ = false;
    size_t before = 0;
    for (const Submitted& step : submitted_) before += step.batches;
    communicator_->SubmitStep();
    submitted_.push_back({runtime_->Mark(),
                          sampler_.pending() - before,
                          {{}, {sampling_start_ns_}}});
  }
  bool StepIsDone() override {
    return runtime_->HasReached(submitted_.front().end);
  }
  StepTimes EndStep() override {
    if (in_step_) SubmitStep();
    Submitted step = submitted_.front();
    submitted_.pop_front();
    runtime_->WaitFor(step.end);
    communicator_->OnSynced(/*goes_on=*/!submitted_.empty());
    sampler_.Collect(step.batches);
    step.times.collectives = communicator_->TakeTimes();
    TraceSpan& sampling = step.times.sampling;
    if (sampling.start_ns != 0) sampling.stop_ns = MonotonicNanos();
    return step.times;
  }

  // The rank with the table gives its rows to all: the root of a one-leaf tree.
  // It samples, too, so tokens that are still drawn are on its device.
  void Embed(const Weight* table, DeviceMatrix x) override {
    if (table == nullptr) return communicator_->ReduceTree(1, {}, {}, View(x));
    if (inputs_.takes_drawn()) {
      sampler_.TakeDrawn(inputs_.token_ids(), x.rows);
    }
    products_.Embed(*table, inputs_.token_ids(), View(x));
    const Matrix part = View(x);
    communicator_->ReduceTree(1, {&kOneLeaf, 1}, {&part, 1}, part);
  }

  void Norm(DeviceMatrix x, const NormSpec& norm, DeviceMatrix y) override {
    RmsNorm(View(x), norm, View(y));
  }

  void Linear(DeviceMatrix x, const NormSpec& norm, const Weight& weight,
              const void* bias, DeviceMatrix y) override {
    if (products_.MultiplyNormed(RowOf(x, norm), weight, Floats(bias),
                                 View(y))) {
      return;
    }
    products_.Multiply(Normed(x, norm), weight, Floats(bias), View(y));
  }

  void GatedLinear(DeviceMatrix x, const NormSpec& norm, const Weight& weight,
                   const void* bias, const Activation& activation,
                   DeviceMatrix both, DeviceMatrix y) override {
    SLUICE_CHECK(bias == nullptr);  // CheckGpuHas refuses such models
    if (products_.MultiplyNormedGated(RowOf(x, norm), weight, activation,
                                      View(y))) {
      return;
    }
    const ConstMatrix in = Normed(x, norm);
    if (products_.MultiplyGated(in, weight, activation, View(y))) return;
    products_.Multiply(in, weight, /*bias=*/nullptr, View(both));
    Gate(activation, both, y);
  }

  void RopeStoreKv(const AttentionSpec& spec, const NormSpec& q_norm,
                   const NormSpec& k_norm, DeviceMatrix qkv,
                   const LayerKv& kv) override {
    SLUICE_CHECK(kv.type == info_.kv_type);
    attention_.RopeStoreKv(spec, {q_norm, k_norm}, View(qkv), kv);
  }

  void Attention(const AttentionSpec& spec, DeviceMatrix qkv, const void* sinks,
                 const LayerKv& kv, DeviceMatrix out) override {
    SLUICE_CHECK(kv.type == info_.kv_type);
    attention_.Attention(spec, View(qkv), Floats(sinks), kv, View(out));
  }

  void RopeAttention(const AttentionSpec& spec, const HeadNorms& norms,
                     DeviceMatrix qkv, const void* sinks, const LayerKv& kv,
                     DeviceMatrix out) override {
    SLUICE_CHECK(kv.type == info_.kv_type);
    if (attention_.RopeAttention(spec, norms, View(qkv), Floats(sinks), kv,
                                 View(out))) {
      return;
    }
    Backend::RopeAttention(spec, norms, qkv, sinks, kv, out);
  }

  void Gate(const Activation& activation, DeviceMatrix x,
            DeviceMatrix y) override {
    if (y.cols == 0) return;
    if (activation.kind == Activation::Kind::kSilu) {
      cuda::SiluMul(stream_, View(x), View(y));
    } else {
      SLUICE_CHECK(activation.kind == Activation::Kind::kClampedSwiGlu);
      cuda::ClampedSwiGlu(stream_, View(x), activation.limit, View(y));
    }
  }

  // CheckGpuHas refuses models that need these.
  void NormEachHead(DeviceMatrix, int64_t, const NormSpec&) override {
    SLUICE_CHECK(false);
  }
  void ScaleRouting(const DeviceRouting&, const void*, int32_t) override {
    SLUICE_CHECK(false);
  }
  void StoreLatent(const AttentionSpec&, const NormSpec&, DeviceMatrix,
                   const LayerKv&) override {
    SLUICE_CHECK(false);
  }
  void LatentQueries(const AttentionSpec&, DeviceMatrix, const Weight&,
                     DeviceMatrix) override {
    SLUICE_CHECK(false);
  }
  void StoreIndexKeys(const AttentionSpec&, const NormSpec&, DeviceMatrix,
                      const LayerKv&) override {
    SLUICE_CHECK(false);
  }
  void ChoosePositions(const AttentionSpec&, DeviceMatrix, DeviceMatrix,
                       const LayerKv&, DeviceMatrix) override {
    SLUICE_CHECK(false);
  }
  void ChosenAttention(const AttentionSpec&, DeviceMatrix, DeviceMatrix,
                       const LayerKv&, DeviceMatrix) override {
    SLUICE_CHECK(false);
  }
  void HeadLinear(DeviceMatrix, const Weight&, DeviceMatrix) override {
    SLUICE_CHECK(false);
  }
  void Map(const kernels::ElementMap&, DeviceMatrix) override {
    SLUICE_CHECK(false);
  }
  void Multiply(DeviceMatrix, DeviceMatrix) override { SLUICE_CHECK(false); }
  void GateRows(DeviceMatrix, DeviceMatrix) override { SLUICE_CHECK(false); }
  void SigmoidGate(DeviceMatrix, DeviceMatrix) override { SLUICE_CHECK(false); }
  void MixState(const kernels::StateMixer&, const StateVectors&,
                const LayerState&, DeviceMatrix, DeviceMatrix,
                DeviceMatrix) override {
    SLUICE_CHECK(false);
  }
  void HeadSquares(const kernels::HeadRuns&, DeviceMatrix,
                   std::span<const kernels::TreeNode>,
                   std::span<const DeviceMatrix>) override {
    SLUICE_CHECK(false);
  }
  void NormBySquares(const SquaresNorm&, DeviceMatrix) override {
    SLUICE_CHECK(false);
  }

  void RowParallel(DeviceMatrix x, const Weight& weight,
                   const RowShards& shards,
                   std::span<const DeviceMatrix> parts) override {
    SLUICE_CHECK(parts.size() == shards.nodes.size());
    const std::span<const Matrix> out = View(parts, parts_);
    if (shards.cols() == 0) {  // a rank whose shards are all empty
      for (const Matrix& part : out) cuda::Fill(stream_, 0.0f, part);
      return;
    }
    products_.MultiplySharded(View(x), weight,
                              {shards.bounds, shards.own_nodes}, out);
  }

  void AddRowParallel(DeviceMatrix x, const Weight& weight,
                      const RowShards& shards,
                      std::span<const DeviceMatrix> parts,
                      const ResidualAdd& add) override {
    if (alone_ && add.norm.weight == nullptr && add.scale == 1 &&
        shards.own_nodes.size() == 1 &&
        products_.AddSharded(View(x), weight, {shards.bounds, shards.own_nodes},
                             Floats(add.bias), View(add.x))) {
      return;
    }
    Backend::AddRowParallel(x, weight, shards, parts, add);
  }

  void ReduceTree(int32_t num_leaves, std::span<const kernels::TreeNode> nodes,
                  std::span<const DeviceMatrix> parts,
                  DeviceMatrix out) override {
    communicator_->ReduceTree(num_leaves, nodes, View(parts, parts_),
                              View(out));
  }

  void Add(DeviceMatrix y, const void* bias, const NormSpec& norm,
           DeviceMatrix x) override {
    ConstMatrix sum = View(y);
    if (bias != nullptr || norm.weight != nullptr) {
      const Matrix changed = Scratch(y.rows, y.cols);
      cuda::TakeRows(stream_, sum, nullptr, changed);
      if (bias != nullptr) {
        // One row of all tokens' rows: a stride of zero.
        cuda::Add(stream_, {Floats(bias), y.rows, y.cols, 0}, changed);
      }
      if (norm.weight != nullptr) RmsNorm(changed, norm, changed);
      sum = changed;
    }
    cuda::Add(stream_, sum, View(x));
  }

  void Route(DeviceMatrix logits, const kernels::RouterRule& rule,
             const void* correction, const DeviceRouting& routing) override {
    cuda::Route(stream_, View(logits), rule, Floats(correction),
                RoutedTo(logits.rows, rule, routing));
  }

  void NormRoute(DeviceMatrix x, const NormSpec& norm, const RouterSpec& router,
                 DeviceMatrix normed, DeviceMatrix logits,
                 const DeviceRouting& routing) override {
    if (fast_ && x.rows == 1 && norm.weight != nullptr &&
        router.weight.parts.size() == 1 &&
        router.weight.parts[0].type == kernels::WeightType::kF32 &&
        cuda::NormRoute(
            stream_,
            {View(x), Floats(norm.weight), norm.eps,
             ViewOf(router.weight).plain, Floats(router.bias), router.rule,
             Floats(router.correction), View(normed), View(logits),
             RoutedTo(1, router.rule, routing), plans_.arrived()})) {
      return;
    }
    Backend::NormRoute(x, norm, router, normed, logits, routing);
  }

  void ExpertNodes(DeviceMatrix x, const DeviceRouting& routing,
                   const ExpertWeights& experts, const Activation& activation,
                   std::span<const kernels::TreeNode> nodes,
                   std::span<const DeviceMatrix> parts) override {
    if (nodes.empty()) return;
    const ExpertArgs args = ArgsOf(x, routing, experts, activation);
    cuda::ExpertNodes(stream_, args.view, args.table, args.rows, nodes,
                      View(parts, parts_));
  }

  void AddExperts(DeviceMatrix x, const DeviceRouting& routing,
                  const ExpertWeights& experts, const Activation& activation,
                  const ExpertAdd& add) override {
    const ExpertArgs args = ArgsOf(x, routing, experts, activation);
    cuda::ExpertSum sum = {add.node[0], {}, View(add.x)};
    if (add.shared.data != nullptr) sum.more = View(add.shared);
    cuda::AddExperts(stream_, args.view, args.table, args.rows, sum);
  }

  void Logits(DeviceMatrix x, int32_t begin, const NormSpec& norm,
              const Weight& head, const LogitsOut& out) override {
    NormedRow in = RowOf(x, norm);
    in.rows = inputs_.logits_rows() + begin;
    if (!products_.MultiplyNormed(in, head, nullptr, View(out.own))) {
      const Matrix normed = Scratch(out.own.rows, x.cols);
      if (fast_) {
        cuda::TileRmsNorm(stream_, in.x, in.rows, in.weight, in.eps, normed);
      } else {
        cuda::TakeRows(stream_, in.x, in.rows, normed);
        RmsNorm(normed, norm, normed);
      }
      products_.Multiply(normed, head, /*bias=*/nullptr, View(out.own));
    }
    communicator_->GatherColumns(View(out.own), out.first_column,
                                 View(out.all));
  }

  void Sample(DeviceMatrix logits, int32_t begin,
              std::span<const RowTask> tasks,
              std::span<StatusOr<TokenResult>> answers) override {
    sampling_start_ns_ = MonotonicNanos();
    communicator_->NoteCopy();
    sampler_.Enqueue(View(logits), begin, tasks, answers);
  }

 private:
  // A step that is enqueued whole.
  struct Submitted {
    uint64_t end = 0;    // a mark of the runtime
    size_t batches = 0;  // of the sampler
    StepTimes times;
  };

  struct ExpertArgs {
    kernels::ExpertsView view;
    cuda::ExpertTable table;
    kernels::ExpertRows rows;
  };
  // Valid until the next call.
  ExpertArgs ArgsOf(DeviceMatrix x, const DeviceRouting& routing,
                    const ExpertWeights& experts,
                    const Activation& activation) {
    const kernels::ExpertsView view =
        View(experts, activation, gate_up_, down_);
    const auto per_row = static_cast<int32_t>(routing.ids.cols);
    const kernels::ExpertRows rows = {
        View(x), static_cast<const int32_t*>(routing.ids.data),
        Floats(routing.weights.data), per_row};
    cuda::ExpertTable table = inputs_.Experts(experts);
    table.bytes = cuda::ExpertBytes(
        {x.rows, per_row, experts.size(), x.cols, down_[0].cols()});
    table.tiles = fast_;
    table.plan = plans_.Find(x.rows, experts, routing.ids.data);
    table.tile_memory = products_.tile_memory();
    table.memory = experts_.AtLeast(static_cast<size_t>(table.bytes));
    return {view, table, rows};
  }
  cuda::RoutedRows RoutedTo(int64_t rows, const kernels::RouterRule& rule,
                            const DeviceRouting& routing) {
    return {static_cast<int32_t*>(routing.ids.data),
            static_cast<float*>(routing.weights.data),
            plans_.NewPlan(rows, rule, routing.ids.data)};
  }
  // Returns a part's bytes as the products read them.
  DeviceMemory Upload(HostWeight part) {
    if (products_.HasTiles(part.type)) {
      DeviceMemory tiles = Allocate(static_cast<size_t>(
          cuda::TileBytes(part.type, part.rows, part.cols)));
      upload_.PackTiles(part, tiles.data());
      return tiles;
    }
    const Buffer bytes = PackPart(std::move(part));
    DeviceMemory packed = Allocate(bytes.size());
    upload_.Copy(bytes.data(), bytes.size(), packed.data());
    return packed;
  }
  void RmsNorm(ConstMatrix x, const NormSpec& norm, Matrix y) {
    if (fast_) {
      return cuda::TileRmsNorm(stream_, x, nullptr, Floats(norm.weight),
                               norm.eps, y);
    }
    cuda::RmsNorm(stream_, x, Floats(norm.weight), norm.eps, y);
  }
  // RmsNorm(x) in scratch memory, or x.
  ConstMatrix Normed(DeviceMatrix x, const NormSpec& norm) {
    if (norm.weight == nullptr) return View(x);
    const Matrix normed = Scratch(x.rows, x.cols);
    RmsNorm(View(x), norm, normed);
    return normed;
  }
  // Returns packed rows that the next operation may reuse, of the largest
  // step at once.
  Matrix Scratch(int64_t rows, int64_t cols) {
    const int64_t most = std::max(rows, most_rows_);
    return {scratch_.AtLeast<float>(most * cols), rows, cols, cols};
  }

  const BackendInfo info_;
  const bool fast_;
  const bool alone_;  // no other rank has a part of a sum
  const std::unique_ptr<cuda::Runtime> runtime_;
  const cuda::Stream stream_;
  StepMemory inputs_;
  CudaProducts products_;
  WeightUpload upload_;
  const std::unique_ptr<DeviceCommunicator> communicator_;
  CudaSampler sampler_;
  GrowingMemory scratch_;
  CudaAttention attention_;
  GrowingMemory experts_;
  RoutePlans plans_;
  bool in_step_ = false;
  int64_t most_rows_ = 0;            // of any step
  int64_t sampling_start_ns_ = 0;    // of the present step; 0: it has none
  std::deque<Submitted> submitted_;  // that have not ended, oldest first
  // Views of an operation's arguments, in memory that is kept.
  std::vector<Matrix> parts_;
  std::vector<kernels::ExpertWeight> gate_up_;
  std::vector<kernels::ExpertWeight> down_;
};

}  // namespace

std::string NameOf(const kernels::cuda::DeviceFacts& device) {
  return Cat("GPU ", device.index, " (", device.name, ", ", device.id, ")");
}

uint64_t ReserveOf(const kernels::cuda::DeviceFacts& device) {
  return device.free_memory / kReserveShare;
}

uint64_t AvailableOf(const kernels::cuda::DeviceFacts& device) {
  return device.free_memory - ReserveOf(device);
}

std::unique_ptr<Backend> MakeCudaBackend(CudaBackendOptions options) {
  return std::make_unique<CudaBackend>(std::move(options));
}

}  // namespace sluice
