#include "common/placement/cluster_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/model_config/kv_layout.h"
#include "common/model_config/rank_plan.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/plan_experts.h"

namespace sluice::placement {
namespace {

// A process without weights and sequences, with its share of libraries, as
// tests/benchmarks/plan_against_runs.py has seen it.
constexpr uint64_t kProcessBytes = 14'000'000;
// What is left to the system: a part, and at least so much.
constexpr uint64_t kReservedPart = 32;
constexpr uint64_t kReservedBytes = uint64_t{256} << 20;
// Sequences that a stage takes by default.
constexpr int64_t kMostSequences = 256;
// Of the logits that a stage computes at a time (common/model/stage_model.cc).
constexpr int64_t kLogitsBytes = int64_t{32} << 20;
// What sampling takes beside them, as a divisor: seen there, too.
constexpr int64_t kSamplingPart = 5;
// The fewest decodes that the gateway puts into a plan of their own.
constexpr int64_t kLeastDecodes = 4;
// Threads that a message passes and wakes on its way over a hop, both ends
// together, and their work on it.
constexpr double kHopWakes = 3;
constexpr double kHopSeconds = 90e-6;
// Of a processor, at the gateway, for a token on its way to a client.
constexpr double kTokenSeconds = 60e-6;
// Of a socket within a machine.
constexpr double kLocalBytesPerSecond = 2e9;

uint64_t UsableBytes(uint64_t memory) {
  const uint64_t reserved = std::max(memory / kReservedPart, kReservedBytes);
  return memory > reserved ? memory - reserved : 0;
}

// Returns the bytes of a stage's activations, and of the process.
uint64_t WorkBytes(const ModelConfig& config, const LayerLoadOptions& loads,
                   bool is_last) {
  int64_t columns = 0;
  for (const LayerConfig& layer : config.layers) {
    const AttentionConfig& attention = layer.attention;
    const int64_t mlp = layer.is_sparse() ? layer.moe.shared_intermediate_size
                                          : layer.mlp.intermediate_size;
    const int64_t sparse =
        layer.is_sparse() ? 3 * config.hidden_size + layer.moe.num_experts : 0;
    columns = std::max(columns, 2 * attention.q_size() +
                                    2 * attention.kv_size() + 3 * mlp + sparse);
  }
  columns += 2 * int64_t{config.hidden_size};
  const int64_t step = loads.max_step_tokens;
  constexpr int64_t kFloat = sizeof(float);
  const int64_t logits = std::min(
      kLogitsBytes, std::max(int64_t{1}, step) * config.vocab_size * kFloat);
  return kProcessBytes +
         static_cast<uint64_t>(columns * step * kFloat +
                               (is_last ? logits + logits / kSamplingPart : 0));
}

// Everything on hosts, for the bytes that this takes off the stages.
ExpertPlacement AllRemote(const ModelConfig& config) {
  ExpertPlacement placement;
  placement.hosts = {{"all", ""}};
  for (const LayerConfig& layer : config.layers) {
    placement.layers.emplace_back();
    if (!layer.is_sparse()) continue;
    placement.layers.back().push_back({{0, layer.moe.num_experts}, {0}});
  }
  return placement;
}

// Plans one cluster: members are what its steps have found so far.
class Planner {
 public:
  Planner(const ModelConfig& config, const weights::ModelFile& model,
          const PlanRequest& request)
      : config_(config), model_(model), request_(request) {}

  StatusOr<ClusterPlan> Run() {
    SLUICE_RETURN_IF_ERROR(Check());
    SLUICE_RETURN_IF_ERROR(PlaceExperts());
    SLUICE_RETURN_IF_ERROR(SplitStages());
    SLUICE_RETURN_IF_ERROR(GiveRoom());
    products_ = ProductsOf(config_, model_, request_.loads.weights);
    Reckon();
    for (const Machine& machine : machines()) {
      plan_.price_per_hour += machine.price_per_hour;
    }
    return std::move(plan_);
  }

 private:
  const std::vector<Machine>& machines() const {
    return request_.machines.machines;
  }

  Status Check() {
    for (size_t i = 0; i < machines().size(); ++i) {
      (machines()[i].serves_experts ? host_machines_ : stage_machines_)
          .push_back(static_cast<int32_t>(i));
    }
    if (stage_machines_.empty()) {
      return InvalidArgument("no machine is there for stages");
    }
    const LayerLoadOptions& loads = request_.loads;
    plan_.kv_type = KvTypeOf(loads.kv_type, config_, model_, loads.weights);
    SLUICE_RETURN_IF_ERROR(CheckKvType(config_, plan_.kv_type));
    const int32_t most =
        MostRanks(config_, ColumnFormatsOf(config_, model_, loads.weights));
    if (loads.ranks < 1 || loads.ranks > most) {
      return InvalidArgument("ranks must be between 1 and ", most, ", got ",
                             loads.ranks);
    }
    const int32_t positions =
        std::min(config_.max_position_embeddings, kMaxContext);
    for (const auto& [name, tokens] :
         {std::pair("context", request_.context),
          std::pair("prompt", request_.prompt_tokens)}) {
      if (tokens >= 1 && tokens <= positions) continue;
      return InvalidArgument(name, " must be between 1 and ", positions,
                             " tokens, got ", tokens);
    }
    return OkStatus();
  }

  // Fills plan_.hosts and plan_.placement.
  Status PlaceExperts() {
    if (host_machines_.empty()) return OkStatus();
    const ExpertPlacement remote = AllRemote(config_);
    LayerLoadOptions loads = request_.loads;
    loads.placement = nullptr;
    const LayerLoads all = LoadsOf(config_, model_, loads);
    loads.placement = &remote;
    const LayerLoads without = LoadsOf(config_, model_, loads);
    ModelBytes bytes;
    for (size_t i = 0; i < all.layers.size(); ++i) {
      bytes.experts.push_back(all.layers[i] - without.layers[i]);
    }
    ExpertPlanOptions options;
    options.replicas = request_.expert_replicas;
    for (const int32_t index : host_machines_) {
      const Machine& machine = machines()[static_cast<size_t>(index)];
      const uint64_t usable = UsableBytes(machine.memory);
      const std::string& address =
          machine.address.empty() ? machine.name : machine.address;
      options.hosts.push_back(
          {{machine.name, address + ":7101"},
           std::max<uint64_t>(
               1, usable > kProcessBytes ? usable - kProcessBytes : 0)});
    }
    SLUICE_ASSIGN_OR_RETURN(plan_.placement,
                            PlanExperts(config_, bytes, options));
    AddHosts(bytes);
    return OkStatus();
  }

  void AddHosts(const ModelBytes& bytes) {
    const auto total = static_cast<double>(std::accumulate(
        bytes.experts.begin(), bytes.experts.end(), uint64_t{0}));
    for (size_t h = 0; h < host_machines_.size(); ++h) {
      HostPlan host;
      host.machine = host_machines_[h];
      double work = 0;
      for (size_t layer = 0; layer < plan_.placement.layers.size(); ++layer) {
        for (const PlacedExperts& run : plan_.placement.layers[layer]) {
          const auto index = static_cast<int32_t>(h);
          if (std::count(run.hosts.begin(), run.hosts.end(), index) == 0) {
            continue;
          }
          const auto of_layer =
              static_cast<uint64_t>(config_.layers[layer].moe.num_experts);
          const uint64_t held = bytes.experts[layer] / of_layer *
                                static_cast<uint64_t>(run.experts.size());
          host.experts += held;
          work +=
              static_cast<double>(held) / static_cast<double>(run.hosts.size());
        }
      }
      host.share = work / total;
      plan_.hosts.push_back(host);
    }
  }

  Status SplitStages() {
    const auto count = static_cast<int32_t>(
        request_.stages == 0 ? stage_machines_.size()
                             : static_cast<size_t>(request_.stages));
    const auto on = static_cast<int32_t>(stage_machines_.size());
    if (count < 1 || count > config_.num_layers()) {
      return InvalidArgument(count, " stages for ", config_.num_layers(),
                             " layers: 1 to ", config_.num_layers(),
                             " are possible");
    }
    // Stages of one machine are neighbours, and share its memory.
    std::vector<int32_t> shared(machines().size());
    for (int32_t i = 0; i < count; ++i) {
      StagePlan& stage = plan_.stages.emplace_back();
      const int32_t at = count <= on ? i : i * on / count;
      stage.machine = stage_machines_[static_cast<size_t>(at)];
      ++shared[static_cast<size_t>(stage.machine)];
    }
    for (int32_t i = 0; i < count; ++i) {
      StagePlan& stage = plan_.stages[static_cast<size_t>(i)];
      const auto at = static_cast<size_t>(stage.machine);
      stage.memory = UsableBytes(machines()[at].memory) /
                     static_cast<uint64_t>(shared[at]);
      stage.work = WorkBytes(config_, request_.loads, i + 1 == count);
      if (stage.memory <= stage.work) {
        return ResourceExhausted(
            "machine ", machines()[at].name, " has ", machines()[at].memory,
            " bytes; a stage takes ", stage.work,
            " for activations alone, beside what the system keeps");
      }
    }
    return SplitFor(Loads());
  }

  // Gives the stages their layers, as stages split them by themselves with
  // StageMemory.
  Status SplitFor(const LayerLoadOptions& options) {
    const LayerLoads loads = LoadsOf(config_, model_, options);
    SLUICE_ASSIGN_OR_RETURN(
        const auto ranges,
        SplitLayers(loads, static_cast<int32_t>(plan_.stages.size()),
                    StageMemory(plan_)));
    for (size_t i = 0; i < ranges.size(); ++i) {
      plan_.stages[i].range = ranges[i];
      plan_.stages[i].bytes = loads.Of(ranges[i]);
    }
    return OkStatus();
  }

  // The loads' options; of a KV cache of one sequence if none is asked for.
  LayerLoadOptions Loads() const {
    LayerLoadOptions loads = request_.loads;
    loads.max_context = request_.context;
    if (!plan_.placement.layers.empty()) loads.placement = &plan_.placement;
    return loads;
  }

  // Gives the KV cache the blocks that fit on every stage.
  Status GiveRoom() {
    LayerLoadOptions options = Loads();
    const int64_t one =
        KvBlocksOfOne(config_, request_.context, options.max_step_tokens);
    int64_t state_blocks = kMaxKvBlocks;
    plan_.kv_blocks = options.kv_blocks;
    options.kv_blocks = 1;
    const LayerLoads of_block = LoadsOf(config_, model_, options);
    if (plan_.kv_blocks == 0) {
      plan_.kv_blocks = std::min(kMostSequences * one, kMaxKvBlocks);
      for (const StagePlan& stage : plan_.stages) {
        uint64_t room = stage.memory - stage.bytes.weights - stage.work;
        const StageBytes one_block = of_block.Of(stage.range);
        if (one_block.state > 0) {
          // As a stage chooses them: half of the room (ChooseStateBlocks).
          const uint64_t states = std::clamp<uint64_t>(
              room / 2 / one_block.state, kLeastStateBlocks, kMaxKvBlocks);
          room -= std::min(room, states * one_block.state);
          state_blocks = std::min(state_blocks, static_cast<int64_t>(states));
        }
        const uint64_t block = std::max<uint64_t>(
            1, one_block.kv - kLeastStateBlocks * one_block.state);
        plan_.kv_blocks =
            std::min(plan_.kv_blocks, static_cast<int64_t>(room / block));
      }
    }
    // The split of one sequence has room for so many blocks, so the best one
    // has, too.
    options.kv_blocks = static_cast<int32_t>(plan_.kv_blocks);
    SLUICE_RETURN_IF_ERROR(SplitFor(options));
    // A sequence that runs holds up to two blocks of states.
    plan_.sequences =
        std::min({kMostSequences, plan_.kv_blocks / one, state_blocks / 2});
    // Each group of layers takes blocks of its own.
    plan_.kv_tokens = plan_.kv_blocks * request_.context / one;
    return OkStatus();
  }

  // Returns the seconds of `rows` hidden states from machine to machine.
  double HopSeconds(double rows, int32_t from, int32_t to) const {
    const Link& link = request_.machines.link;
    const double bytes = rows * config_.row_size() * sizeof(float);
    const double wake = machines()[static_cast<size_t>(to)].rates.wake_seconds;
    const double software = kHopSeconds + kHopWakes * wake;
    if (from == to) return software + bytes / kLocalBytesPerSecond;
    return software + link.latency_seconds + bytes / link.bytes_per_second;
  }

  // Returns the seconds that the layers of a stage wait for hosts of experts.
  double TripSeconds(const StagePlan& stage, double rows) const {
    double seconds = 0;
    for (int32_t i = stage.range.first; i < stage.range.last; ++i) {
      if (plan_.hosts.empty() || !config_.is_sparse(i)) continue;
      const auto at = static_cast<size_t>(i);
      const MoeConfig& moe = config_.layers[at].moe;
      double longest = 0;
      for (const HostPlan& host : plan_.hosts) {
        const Machine& machine = machines()[static_cast<size_t>(host.machine)];
        longest = std::max(
            longest, HopSeconds(rows, stage.machine, host.machine) +
                         HopSeconds(rows, host.machine, stage.machine) +
                         HostSeconds(moe, products_.layers[at], host.share,
                                     machine.rates, rows));
      }
      seconds += longest;
    }
    return seconds;
  }

  double StageSeconds(const StagePlan& stage, const StepShape& step) const {
    const StageWork work = {&config_,
                            &products_,
                            stage.range,
                            plan_.kv_type,
                            plan_.hosts.empty() ? 1.0 : 0.0,
                            stage.bytes.weights};
    const Machine& machine = machines()[static_cast<size_t>(stage.machine)];
    return StepSeconds(work, machine.rates, step) +
           TripSeconds(stage, static_cast<double>(step.rows()));
  }

  // A step through the pipeline: all of it, and the machine that works longest.
  struct Pass {
    double all = 0;
    double longest = 0;
  };
  Pass PassOf(const StepShape& step) const {
    Pass pass;
    std::vector<double> busy(machines().size());
    for (const StagePlan& stage : plan_.stages) {
      const double seconds = StageSeconds(stage, step);
      pass.all += seconds;
      busy[static_cast<size_t>(stage.machine)] += seconds;
    }
    // Hidden states between stages; plans and results at the ends.
    int32_t from = plan_.stages[0].machine;
    for (const StagePlan& stage : plan_.stages) {
      const bool first = &stage == &plan_.stages[0];
      pass.all += HopSeconds(first ? 0 : static_cast<double>(step.rows()), from,
                             stage.machine);
      from = stage.machine;
    }
    const int32_t gateway = plan_.stages[0].machine;
    pass.all += HopSeconds(0, from, gateway);
    // The first machine's threads, where they are known, do the gateway's work,
    // too.
    const int32_t threads =
        machines()[static_cast<size_t>(gateway)].rates.threads;
    const double text = threads == 0 ? 0
                                     : static_cast<double>(step.sequences) *
                                           kTokenSeconds / threads;
    pass.all += text;
    busy[static_cast<size_t>(gateway)] += text;
    pass.longest = *std::max_element(busy.begin(), busy.end());
    return pass;
  }

  int64_t MachinesOfStages() const {
    std::vector<int32_t> used;
    for (const StagePlan& stage : plan_.stages) used.push_back(stage.machine);
    return std::unique(used.begin(), used.end()) - used.begin();
  }

  double TokensPerSecond(int64_t streams) const {
    const int64_t most = std::max<int64_t>(1, streams / kLeastDecodes);
    const int64_t groups = std::min(MachinesOfStages(), most);
    const int64_t batch = (streams + groups - 1) / groups;
    const Pass pass = PassOf({batch, 1, request_.context});
    const double interval =
        std::max(pass.all, static_cast<double>(groups) * pass.longest);
    return static_cast<double>(streams) / interval;
  }

  void Reckon() {
    const size_t next = plan_.stages.size() > 1 ? 1 : 0;
    plan_.hop_seconds =
        HopSeconds(1, plan_.stages[0].machine, plan_.stages[next].machine);
    for (StagePlan& stage : plan_.stages) {
      stage.step_seconds = StageSeconds(stage, {1, 1, request_.context});
    }
    for (const int32_t streams : request_.streams) {
      plan_.speeds.push_back(
          {streams, streams <= plan_.sequences, TokensPerSecond(streams)});
    }
    // Chunks of a prompt follow one another through the pipeline.
    double busy = 0;
    for (int32_t done = 0; done < request_.prompt_tokens;) {
      const int32_t chunk = std::min(request_.loads.max_step_tokens,
                                     request_.prompt_tokens - done);
      const Pass pass = PassOf({1, chunk, done});
      plan_.ttft_seconds += done == 0 ? pass.all : pass.longest;
      busy += pass.longest;
      done += chunk;
    }
    plan_.prompt_tokens_per_second = request_.prompt_tokens / busy;
  }

  const ModelConfig& config_;
  const weights::ModelFile& model_;
  const PlanRequest& request_;
  std::vector<int32_t> stage_machines_;
  std::vector<int32_t> host_machines_;
  ModelProducts products_;
  ClusterPlan plan_;
};

}  // namespace

std::vector<uint64_t> StageMemory(const ClusterPlan& plan) {
  std::vector<uint64_t> memory;
  for (const StagePlan& stage : plan.stages) {
    memory.push_back(stage.memory - stage.work);
  }
  return memory;
}

StatusOr<ClusterPlan> PlanCluster(const ModelConfig& config,
                                  const weights::ModelFile& model,
                                  const PlanRequest& request) {
  auto plan = Planner(config, model, request).Run();
  if (plan.status().code() != StatusCode::kResourceExhausted) return plan;
  using kernels::WeightType;
  PlanRequest narrow = request;
  narrow.loads.kv_type = WeightType::kBf16;
  const auto kept =
      KvTypeOf(request.loads.kv_type, config, model, request.loads.weights);
  if (kept != WeightType::kF32 || !Planner(config, model, narrow).Run().ok())
    return plan;
  return ResourceExhausted(Message(plan.status()), "; with --kv-type bf16, ",
                           "keys and values of half the size, the plan fits");
}

double PricePerMillion(double price_per_hour, double tokens_per_second) {
  return price_per_hour / 3600 / tokens_per_second * 1e6;
}

}  // namespace sluice::placement
