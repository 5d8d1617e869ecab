#include "common/stage/load_ranks.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "common/base/cat.h"
#include "common/base/catch_exceptions.h"
#include "common/base/control_group.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/device/cpu/available_memory.h"
#include "common/device/device_choice.h"
#include "common/device/kv_cache.h"
#include "common/model/gpu_support.h"
#include "common/model/local_experts.h"
#include "common/model/packed_weights.h"
#include "common/model/stage_weights.h"
#include "common/model_config/config_report.h"
#include "common/model_config/kv_layout.h"
#include "common/model_config/open_model.h"
#include "common/model_config/rank_plan.h"
#include "common/placement/layer_loads.h"
#include "common/stage/boundary_log.h"
#include "common/stage/cache_bytes.h"
#include "common/stage/kv_room.h"
#include "common/stage/layer_specs.h"
#include "common/stage/measure_room.h"
#include "common/stage/rank_link.h"
#include "common/tensor/buffer_pool.h"
#include "common/tensor/weight_format.h"
#include "common/weights/model_name.h"
#include "common/weights/weight_sums.h"

namespace sluice {
namespace {

StatusOr<StageRange> ParseRange(const StageOptions& options,
                                int32_t num_layers) {
  const int32_t first = options.first_layer;
  const int32_t last =
      options.last_layer == -1 ? num_layers : options.last_layer;
  if (first < 0 || last > num_layers || first >= last) {
    return InvalidArgument("layers [", first, ", ", last,
                           ") are not a range of the model's ", num_layers,
                           " layers");
  }
  return StageRange{first, last, first == 0, last == num_layers};
}

Status CheckCount(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(name, " must be between ", low, " and ", high,
                         ", got ", value);
}

Status CheckOptions(const StageOptions& options) {
  SLUICE_RETURN_IF_ERROR(CheckCount("threads", options.threads, 0, 1024));
  SLUICE_RETURN_IF_ERROR(
      CheckCount("kv_blocks", options.kv_blocks, 0, kMaxKvBlocks));
  SLUICE_RETURN_IF_ERROR(CheckCount("max_step_tokens", options.max_step_tokens,
                                    1, kMaxStepTokens));
  SLUICE_RETURN_IF_ERROR(
      CheckCount("max_sequences", options.max_sequences, 1, 1 << 14));
  if (options.rank_link == nullptr) return OkStatus();
  if (!options.placement.hosts.empty()) {
    return InvalidArgument(
        "a placement of experts goes with ranks of one process, not of "
        "several");
  }
  SLUICE_RETURN_IF_ERROR(
      CheckCount("all_ranks", options.all_ranks, 2, kMaxShards));
  return CheckCount("first_rank", options.first_rank, 0,
                    options.all_ranks - options.ranks);
}

// A model of outlines has the identity of the true one.
PackedOptions PackedFor(const StageOptions& options, const ModelConfig& config,
                        const weights::ModelFile& file) {
  if (options.outlines == weights::OutlineReads::kRepeat) return {};
  return BoundFor(options.packed, config, file, options.weights);
}

Duration SpinOf(const StageOptions& options, const StageInfo& info) {
  return options.spin.value_or(
      UsualSpin(!info.gpus.empty(), options.ranks, UsableCpus()));
}

// Loads a stage from checked options, one step after another.
class StageLoader {
 public:
  // `digest`: the model's.
  StageLoader(const StageOptions& options, const weights::ModelFile& file,
              const ModelConfig& config, const std::string& digest)
      : options_(options),
        file_(file),
        config_(config),
        kept_(KvTypeOf(options.kv_type, config, file, options.weights)),
        packed_(PackedFor(options, config, file), options.threads, file,
                digest),
        loader_(file, config, options.weights, &packed_) {}

  // Fills `info` and starts the ranks.
  StatusOr<std::unique_ptr<RankGroup>> Load(StageInfo& info) {
    SLUICE_RETURN_IF_ERROR(Prepare(info));
    // Before any reads its weights, which may take minutes.
    SLUICE_RETURN_IF_ERROR(AgreeOnCache(info));
    for (const RankPlan& plan : plans_) loader_.Announce(range_, plan);
    std::vector<Backend*> backends;
    for (const RankPlan& plan : plans_) backends.push_back(&BackendOf(plan));
    SLUICE_ASSIGN_OR_RETURN(
        std::vector<RankWeights> weights,
        loader_.Load(range_, plans_, backends, whole_, options_.progress));
    for (const RankWeights& rank : weights) info.weights_bytes += rank.bytes;
    packed_.LogUse();
    SLUICE_RETURN_IF_ERROR(MeasureAgain(info));
    SLUICE_RETURN_IF_ERROR(AgreeOnCache(info));
    for (size_t r = 0; r < plans_.size(); ++r) {
      ranks_.push_back(MakeRank(plans_[r], std::move(weights[r])));
    }
    SLUICE_RETURN_IF_ERROR(AgreeOnBytes(info));
    // Of the whole model: every stage says the same.
    const WeightFormatSet formats = FormatsOf(config_, file_, options_.weights);
    info.weights_dtype = formats.names();
    info.product_numerics =
        formats.numerics(info.numerics, options_.activations);
    info.numerics = info.product_numerics;
    // The asked context chooses between two sets of frequencies.
    for (const RopeConfig& rope : config_.ropes) {
      if (IsLongRope(rope, AskedContext())) info.numerics += "+long-rope-1";
    }
    if (kv_type_ == ElementType::kBf16) info.numerics += Cat("+", kKvBf16);
    if (kv_type_ == ElementType::kQ8_0) info.numerics += Cat("+", kKvQ8);
    return std::make_unique<RankGroup>(
        std::move(ranks_), options_.total_ranks(), SpinOf(options_, info));
  }

  const StepLimits& limits() const { return limits_; }

 private:
  Status Prepare(StageInfo& info) {
    SLUICE_ASSIGN_OR_RETURN(range_, ParseRange(options_, config_.num_layers()));
    SLUICE_RETURN_IF_ERROR(CheckSharedKv(config_, range_.first_layer));
    SLUICE_RETURN_IF_ERROR(CheckKvType(config_, kept_));
    const auto formats = ColumnFormatsOf(config_, file_, options_.weights);
    for (int32_t r = 0; r < options_.ranks || r == 0; ++r) {
      SLUICE_ASSIGN_OR_RETURN(
          auto plan,
          PlanRank(config_, options_.total_ranks(), options_.first_rank + r,
                   options_.placement, formats));
      plans_.push_back(std::move(plan));
    }
    if (options_.ranks > 1 && options_.ranks == options_.total_ranks()) {
      SLUICE_ASSIGN_OR_RETURN(auto whole,
                              PlanRank(config_, /*ranks=*/1, /*rank=*/0,
                                       options_.placement, formats));
      whole_ = std::move(whole);
    }
    SLUICE_ASSIGN_OR_RETURN(backends_,
                            options_.make_backends(DevicesOfRanks(info)));
    const BackendInfo& device = backends_[0]->info();
    if (!device.gpu.empty()) SLUICE_RETURN_IF_ERROR(CheckGpuHas(config_));
    SLUICE_RETURN_IF_ERROR(
        CheckWidened(options_.activations,
                     FormatsOf(config_, file_, options_.weights), device.gpu));
    kv_type_ = device.kv_type;
    limits_.max_step_tokens = options_.max_step_tokens;
    limits_.max_sequences = options_.max_sequences;
    const std::vector<int32_t> windows = KvWindows(config_);
    limits_.num_kv_groups = static_cast<int32_t>(windows.size());
    info.first_layer = range_.first_layer;
    info.last_layer = range_.last_layer;
    info.numerics = device.numerics;
    info.threads = device.threads * options_.ranks;
    info.isa = device.isa;
    loads_ = LoadMemories();
    info.room = MeasureRoom(options_, file_, config_, AvailableOnAll());
    for (const auto& backend : backends_) {
      const std::string& gpu = backend->info().gpu;
      if (gpu.empty() || std::ranges::count(info.gpus, gpu) > 0) continue;
      info.gpus.push_back(gpu);
    }
    return SizeCache(info);
  }

  BackendOptions DevicesOfRanks(const StageInfo& info) const {
    BackendOptions devices;
    devices.ranks = options_.ranks;
    devices.threads = options_.threads;
    devices.pin_threads = options_.pin_threads;
    devices.isa = options_.isa;
    devices.kv_type = kept_;
    devices.device = options_.device;
    devices.numerics = options_.numerics;
    devices.activations = options_.activations;
    if (options_.rank_link == nullptr) return devices;
    devices.first_rank = options_.first_rank;
    devices.all_ranks = options_.all_ranks;
    devices.share_id = [this, &info](std::string own) {
      return options_.rank_link->Connect(OrderOf(info), std::move(own));
    };
    return devices;
  }

  RankOrder OrderOf(const StageInfo& info) const {
    RankOrder order;
    order.model_digest = info.model_digest;
    order.first_layer = range_.first_layer;
    order.last_layer = range_.last_layer;
    order.all_ranks = options_.all_ranks;
    order.weights = options_.weights;
    order.kv_type = kept_;
    order.numerics = options_.numerics;
    order.memory = options_.memory;
    order.kv_blocks = options_.kv_blocks;
    order.max_context = options_.max_context;
    order.max_step_tokens = options_.max_step_tokens;
    order.max_sequences = options_.max_sequences;
    return order;
  }

  // Returns this process's part of what all ranks may take, or of what they
  // would take if others are as those of this process.
  uint64_t OwnPart(uint64_t bytes) const {
    return bytes / static_cast<uint64_t>(options_.total_ranks()) *
           static_cast<uint64_t>(options_.ranks);
  }

  // Chooses context and KV blocks from the memories' loads.
  Status SizeCache(StageInfo& info) {
    const uint64_t memory =
        HasAllRanks() ? options_.memory : OwnPart(options_.memory);
    SLUICE_ASSIGN_OR_RETURN(room_, RoomBeside(loads_, memory));
    room_.is_f32 = kv_type_ == ElementType::kF32;
    SLUICE_ASSIGN_OR_RETURN(state_blocks_,
                            ChooseStateBlocks(options_, config_, room_));
    const KvRoom room = room_.Beside(state_blocks_);
    SLUICE_ASSIGN_OR_RETURN(limits_.max_context,
                            ChooseMaxContext(options_, config_, room));
    SLUICE_ASSIGN_OR_RETURN(
        kv_blocks_,
        ChooseKvBlocks(options_, config_, limits_.max_context, room));
    // A state without its sequence's keys and values is of no use.
    state_blocks_ =
        std::min(state_blocks_, std::max(kv_blocks_, kLeastStateBlocks));
    TellCache(info);
    return OkStatus();
  }

  void TellCache(StageInfo& info) const {
    info.limits = {limits_.max_step_tokens, limits_.max_sequences,
                   limits_.max_context,     kv_blocks_,
                   limits_.num_kv_groups,   config_.vocab_size,
                   KvWindows(config_),      state_blocks_};
    info.kv_bytes =
        BytesPerBlock(range_, config_, plans_, kv_type_) *
            static_cast<uint64_t>(kv_blocks_) +
        BytesPerState(range_, plans_) * static_cast<uint64_t>(state_blocks_);
    ChooseReplayLog(backends_[0]->info(), room_, info);
    TellContext(info);
  }

  bool HasAllRanks() const { return options_.rank_link == nullptr; }

  RankFacts FactsOf(const StageInfo& info) const {
    return {backends_[0]->info().numerics,
            limits_.max_context,
            kv_blocks_,
            info.weights_bytes,
            info.kv_bytes,
            state_blocks_};
  }

  // Takes the least cache of all processes that have ranks.
  Status AgreeOnCache(StageInfo& info) {
    if (HasAllRanks()) return OkStatus();
    facts_ = FactsOf(info);
    SLUICE_ASSIGN_OR_RETURN(const RankFacts all,
                            options_.rank_link->Agree(facts_));
    SLUICE_RETURN_IF_ERROR(CheckCount("max_context of all ranks",
                                      all.max_context, 1, limits_.max_context));
    SLUICE_RETURN_IF_ERROR(
        CheckCount("kv_blocks of all ranks", all.kv_blocks, 1, kv_blocks_));
    limits_.max_context = all.max_context;
    kv_blocks_ = all.kv_blocks;
    SLUICE_RETURN_IF_ERROR(CheckCount("state_blocks of all ranks",
                                      all.state_blocks, 0, state_blocks_));
    state_blocks_ = all.state_blocks;
    TellCache(info);
    return OkStatus();
  }

  // All ranks are loaded behind it.
  Status AgreeOnBytes(StageInfo& info) {
    if (HasAllRanks()) return OkStatus();
    facts_.max_context = limits_.max_context;
    facts_.kv_blocks = kv_blocks_;
    facts_.state_blocks = state_blocks_;
    facts_.kv_bytes = info.kv_bytes;
    SLUICE_ASSIGN_OR_RETURN(const RankFacts all,
                            options_.rank_link->Agree(facts_));
    if (all.kv_blocks != kv_blocks_) {
      return FailedPrecondition("ranks have ", all.kv_blocks,
                                " KV blocks, this process's ", kv_blocks_);
    }
    info.weights_bytes = all.weights_bytes;
    info.kv_bytes = all.kv_bytes;
    return OkStatus();
  }

  // Sizes the KV cache anew if others took of the GPUs' memory while the
  // weights were loaded, as another stage that shares a GPU does.
  Status MeasureAgain(StageInfo& info) {
    bool is_less = false;
    for (MemoryLoad& load : loads_) {
      if (load.device.empty()) continue;
      const uint64_t now = AvailableNow(load.memory) + load.weights;
      is_less = is_less || now < load.available;
      load.available = std::min(load.available, now);
    }
    return is_less ? SizeCache(info) : OkStatus();
  }

  // Returns what is left of a memory that ranks compute in.
  uint64_t AvailableNow(int memory) const {
    for (const auto& backend : backends_) {
      if (backend->info().memory == memory) return backend->AvailableMemory();
    }
    return 0;
  }

  Backend& BackendOf(const RankPlan& plan) { return *backends_[PlaceOf(plan)]; }

  // Returns the rank's number in this process.
  size_t PlaceOf(const RankPlan& plan) const {
    return static_cast<size_t>(plan.rank - options_.first_rank);
  }

  // Returns the bytes of all ranks' weights.
  uint64_t WeightBytes() const {
    LayerLoadOptions loads;
    loads.weights = options_.weights;
    loads.placement = &options_.placement;
    loads.ranks = options_.ranks;
    return LoadsOf(config_, file_, loads)
        .Of({range_.first_layer, range_.last_layer})
        .weights;
  }

  // Returns the loads of the memories that the ranks compute in.
  std::vector<MemoryLoad> LoadMemories() const {
    std::map<int, MemoryLoad> loads;
    for (size_t r = 0; r < plans_.size(); ++r) {
      const BackendInfo& device = backends_[r]->info();
      MemoryLoad& load = loads[device.memory];
      load.device = device.device;
      load.memory = device.memory;
      load.available = device.available_memory;
      load.weights += loader_.LoadedBytes(range_, plans_[r]);
      load.block_bytes +=
          BytesPerBlock(range_, config_, {plans_[r]}, device.kv_type);
      load.state_bytes += BytesPerState(range_, {plans_[r]});
    }
    std::vector<MemoryLoad> all;
    for (auto& [memory, load] : loads) {
      // Of layers without attention.
      load.block_bytes = std::max<uint64_t>(load.block_bytes, 1);
      all.push_back(std::move(load));
    }
    if (all.size() == 1 && HasAllRanks()) all[0].weights = WeightBytes();
    return all;
  }

  // Returns what equal shares may take of all memories.
  uint64_t AvailableOnAll() const {
    std::map<int, uint64_t> available;
    for (const auto& backend : backends_) {
      available[backend->info().memory] = backend->info().available_memory;
    }
    const uint64_t own = EqualShares(available);
    return HasAllRanks() ? own : own / options_.ranks * options_.total_ranks();
  }

  void ChooseReplayLog(const BackendInfo& device, const KvRoom& room,
                       StageInfo& info) const {
    const uint64_t log_bytes = BoundaryLog::BytesOf(info);
    const uint64_t left = device.shares_host_memory
                              ? room.at_most - info.kv_bytes
                              : AvailableMemory();
    info.replay_log = options_.replay_log && !range_.is_last &&
                      log_bytes <= left / kKvMemoryShare;
    if (options_.replay_log && !range_.is_last && !info.replay_log) {
      LogInfo("no replay log: it would take ", log_bytes >> 20, " MiB");
    }
  }

  void TellContext(StageInfo& info) const {
    info.context = KvPositionsIn(config_, kv_blocks_, limits_.max_step_tokens,
                                 limits_.max_context);
    if (info.context == config_.max_position_embeddings) {
      info.context_limit = "the model's";
    } else if (info.context == options_.max_context) {
      info.context_limit = "--max-context";
    } else if (info.context == kMaxContext) {
      info.context_limit = Cat("the most that there can be; the model has ",
                               config_.max_position_embeddings);
    } else {
      info.context_limit = Cat("what the KV cache holds; the model has ",
                               config_.max_position_embeddings);
      const bool is_short = info.context < kDefaultMaxContext;
      if (is_short && room_.is_f32 && options_.kv_blocks == 0) {
        info.context_limit +=
            Cat("; memory is short: --kv-type bf16 halves the ",
                info.kv_bytes / 1000000, " MB of keys and values");
      }
    }
  }

  RankGroup::Rank MakeRank(const RankPlan& plan, RankWeights weights) {
    RankGroup::Rank rank;
    rank.backend = std::move(backends_[PlaceOf(plan)]);
    rank.model = std::make_unique<StageModel>(
        ShapeOf(plan, *rank.backend), plan, std::move(weights),
        StageModel::Dependencies{
            rank.backend.get(),
            plan.rank == 0 ? options_.expert_transport : nullptr});
    return rank;
  }

  int32_t AskedContext() const {
    return options_.max_context > 0 ? options_.max_context
                                    : config_.max_position_embeddings;
  }

  StageModelShape ShapeOf(const RankPlan& plan, Backend& backend) const {
    StageModelShape shape = {range_, config_.hidden_size, config_.vocab_size,
                             limits_.max_step_tokens, kv_blocks_};
    shape.row_size = config_.row_size();
    shape.per_layer_input = config_.per_layer_input;
    shape.final_norm_eps = static_cast<float>(config_.rms_norm_eps);
    shape.layer_norm = config_.layers[0].norm.layer_norm;
    shape.embedding_scale = static_cast<float>(config_.embedding_scale);
    shape.logits = {static_cast<float>(config_.logit_scale),
                    static_cast<float>(config_.logit_soft_cap)};
    std::vector<RopeHandle> ropes;
    for (const RopeConfig& rope : config_.ropes) {
      ropes.push_back(
          backend.AddRope(RopeOf(rope, limits_.max_context, AskedContext())));
    }
    for (int32_t i = range_.first_layer; i < range_.last_layer; ++i) {
      const LayerConfig& layer = config_.layers[i];
      shape.layers.push_back(SpecOf(layer, plan.layers[i], ropes));
      const int32_t source = layer.attention.kv_layer;
      shape.layers.back().kv_layer =
          (source < 0 ? i : source) - range_.first_layer;
    }
    shape.kv_groups = KvGroups(config_, range_.first_layer, range_.last_layer);
    shape.state_blocks = state_blocks_;
    shape.state_group = StateGroup(config_);
    return shape;
  }

  const StageOptions& options_;
  const weights::ModelFile& file_;
  const ModelConfig& config_;
  const kernels::WeightType kept_;  // what keys and values are kept in
  PackedWeights packed_;
  WeightLoader loader_;
  StageRange range_;
  std::vector<RankPlan> plans_;
  std::optional<RankPlan> whole_;  // of several ranks, all of this process
  std::vector<std::unique_ptr<Backend>> backends_;  // of ranks to be loaded
  // Loaded; here until all of them are, so that GiveUp comes before they go.
  std::vector<RankGroup::Rank> ranks_;
  std::vector<MemoryLoad> loads_;
  KvRoom room_;
  StepLimits limits_;
  RankFacts facts_;  // of this process, where others have ranks
  int32_t kv_blocks_ = 0;
  int32_t state_blocks_ = 0;
  ElementType kv_type_ = ElementType::kF32;
};

}  // namespace

StatusOr<OpenedModel> OpenChecked(const StageOptions& options,
                                  StageInfo& info) {
  SLUICE_RETURN_IF_ERROR(CheckOptions(options));
  OpenedModel model;
  SLUICE_ASSIGN_OR_RETURN(model.file, OpenModel(options.model_path));
  model.file->SetOutlineReads(options.outlines);
  SLUICE_ASSIGN_OR_RETURN(model.config,
                          options.parse_config(model.file->config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(model.config, *model.file));
  info.model_name = weights::ModelName(*model.file);
  SLUICE_ASSIGN_OR_RETURN(const auto digest,
                          weights::ComputeIdentity(*model.file));
  SLUICE_RETURN_IF_ERROR(weights::UseWeightSums(*model.file, digest));
  info.model_digest = digest.Hex();
  if (model.file->computed().has_value()) {
    info.model_config = model.file->computed()->config;
  }
  LogUnreadKeys(*model.file);
  info.num_layers = model.config.num_layers();
  info.hidden_size = model.config.row_size();
  info.residual_size = static_cast<int32_t>(model.config.hidden_size);
  info.ranks = options.total_ranks();
  return model;
}

StatusOr<LoadedRanks> LoadRanks(const StageOptions& options,
                                const OpenedModel& model, StageInfo& info) {
  const TimePoint start = Clock::now();
  FreeMessageMemory();  // what is free is measured
  StageLoader loader(options, *model.file, model.config, info.model_digest);
  LoadedRanks loaded;
  StatusOr<std::unique_ptr<RankGroup>> ranks = nullptr;
  const Status caught =
      CatchExceptions("load-ranks", [&] { ranks = loader.Load(info); });
  if (!caught.ok()) ranks = caught;
  if (!ranks.ok() && options.rank_link != nullptr) {
    options.rank_link->GiveUp(ranks.status());
    options.rank_link->AwaitDrop();
  }
  SLUICE_ASSIGN_OR_RETURN(loaded.ranks, std::move(ranks));
  loaded.limits = loader.limits();
  loaded.spin = SpinOf(options, info);
  info.bytes_read = model.file->bytes_read();
  // Returns to the system the memory of making weights, beside the weights.
  malloc_trim(0);
  info.load_seconds = Seconds(Clock::now() - start);
  return loaded;
}

}  // namespace sluice
