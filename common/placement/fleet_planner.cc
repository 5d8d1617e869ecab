#include "common/placement/fleet_planner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/core/kv_groups.h"
#include "common/model_config/kv_layout.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/least_memory.h"
#include "common/placement/plan_experts.h"

namespace sluice::placement {
namespace {

// Sequences that a stage takes by default.
constexpr int64_t kMostSequences = 256;

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

}  // namespace

FleetPlanner::FleetPlanner(const ModelConfig& config,
                           const weights::ModelFile& model,
                           const ModelProducts& products,
                           const PlanRequest& request)
    : config_(config), model_(model), products_(products), request_(request) {
  layers_.machines = &request.machines.machines;
  asked_sequences_ = request.sequences > 0   ? request.sequences
                     : request.aim.is_prompt ? 1
                                             : request.aim.streams;
  const LayerLoadOptions& loads = request.loads;
  plan_.kv_type = KvTypeOf(loads.kv_type, config_, model_, loads.weights);
}

Status FleetPlanner::Begin(const std::vector<int32_t>& hosts) {
  SLUICE_RETURN_IF_ERROR(ChooseStages(hosts));
  SLUICE_RETURN_IF_ERROR(PlaceExperts(hosts));
  LayerLoadOptions loads = Loads();
  if (loads.kv_blocks == 0) {
    loads.kv_blocks = static_cast<int32_t>(std::min(
        kMaxKvBlocks,
        asked_sequences_ *
            KvBlocksOfOne(config_, request_.context, loads.max_step_tokens)));
  }
  const int64_t sequences = request_.loads.kv_blocks > 0 ? 1 : asked_sequences_;
  needs_ = std::make_unique<StageMemoryNeeds>(
      config_, LoadsOf(config_, model_, loads), loads, sequences);
  times_ = std::make_unique<ClusterTimes>(config_, products_, request_.machines,
                                          plan_.hosts, plan_.kv_type);
  const auto has_room = [this](int32_t machine) {
    return UsableBytes((*layers_.machines)[At(machine)].memory) >
           needs_->work(false);
  };
  if (std::ranges::any_of(layers_.on, has_room)) return OkStatus();
  const Machine& machine = (*layers_.machines)[At(layers_.on[0])];
  return ResourceExhausted(
      "machine ", machine.name, " has ", machine.memory,
      " bytes; a stage takes ", needs_->work(false),
      " for activations alone, beside what the system keeps");
}

Status FleetPlanner::PlaceExperts(const std::vector<int32_t>& hosts) {
  plan_.hosts.clear();
  plan_.placement = {};
  if (hosts.empty()) return OkStatus();
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
  for (const int32_t index : hosts) {
    const Machine& machine = (*layers_.machines)[At(index)];
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
  AddHosts(bytes, hosts);
  return OkStatus();
}

void FleetPlanner::AddHosts(const ModelBytes& bytes,
                            const std::vector<int32_t>& hosts) {
  const auto total = static_cast<double>(
      std::accumulate(bytes.experts.begin(), bytes.experts.end(), uint64_t{0}));
  for (size_t h = 0; h < hosts.size(); ++h) {
    HostPlan host;
    host.machine = hosts[h];
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

// Stages beyond the machines share them, and are neighbours there.
Status FleetPlanner::ChooseStages(const std::vector<int32_t>& hosts) {
  layers_.on.clear();
  for (size_t i = 0; i < layers_.machines->size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (std::ranges::count(hosts, index) == 0) layers_.on.push_back(index);
  }
  if (layers_.on.empty()) {
    return InvalidArgument("no machine is there for stages");
  }
  const auto machines = static_cast<int32_t>(layers_.on.size());
  const int32_t count = request_.stages;
  if (count < 0 || count > config_.num_layers()) {
    return InvalidArgument(count, " stages for ", config_.num_layers(),
                           " layers: 1 to ", config_.num_layers(),
                           " are possible");
  }
  layers_.stages.assign(layers_.on.size(), count > machines ? 0 : 1);
  if (count <= machines) return OkStatus();
  for (int64_t i = 0; i < count; ++i) {
    ++layers_.stages[static_cast<size_t>(i * machines / count)];
  }
  return OkStatus();
}

LayerLoadOptions FleetPlanner::Loads() const {
  LayerLoadOptions loads = request_.loads;
  loads.max_context = request_.context;
  if (!plan_.placement.layers.empty()) loads.placement = &plan_.placement;
  return loads;
}

std::vector<SplitProblem> FleetPlanner::Problems(
    const SplitRules& given) const {
  SplitRules rules = given;
  const auto machines = static_cast<int32_t>(layers_.on.size());
  const int32_t stages = std::min(request_.stages, machines);
  if (stages > 0) rules.least = rules.most = stages;
  rules.most = std::min(rules.most, machines);
  std::vector<SplitProblem> problems;
  if (request_.aim.is_prompt) {
    const std::vector<StepShape> chunks =
        ChunksOf(request_.prompt_tokens, request_.loads.max_step_tokens);
    const std::span<const StepShape> behind = std::span(chunks).subspan(1);
    problems.push_back(
        {SplitCostsOf(*times_, *needs_, layers_, chunks[0], behind),
         {1, /*adds_turn=*/true},
         rules});
    return problems;
  }
  const int32_t streams = request_.aim.streams;
  const auto most = static_cast<int32_t>(GroupsOf(streams, rules.most));
  for (int32_t groups = 1; groups <= most; ++groups) {
    SplitRules of = rules;
    of.least = std::max(of.least, groups);
    // Fewer machines than there could be groups.
    if (groups < GroupsOf(streams, groups + 1)) of.most = groups;
    if (of.least > of.most) continue;
    const StepShape step = {GroupSize(streams, groups), 1, request_.context};
    problems.push_back(
        {SplitCostsOf(*times_, *needs_, layers_, step, {&step, 1}),
         {static_cast<double>(groups), false},
         of});
  }
  return problems;
}

PlacedByTime FleetPlanner::Solve(const SplitRules& rules) const {
  return BestOf(Problems(rules)).placed;
}

PlacedByTime FleetPlanner::SolveWithRoom() const {
  const std::vector<SplitProblem> problems = Problems({});
  Solved best = BestOf(problems);
  if (!best.placed.fits()) return best.placed;
  return LeastCrowded(*best.problem, std::move(best.placed));
}

FleetPlanner::Solved FleetPlanner::BestOf(
    const std::vector<SplitProblem>& problems) {
  Solved best;
  double bound = kNever;
  bool exact = true;
  const double effort = 1 / static_cast<double>(problems.size());
  // More groups are mostly faster.
  for (size_t i = problems.size(); i > 0; --i) {
    PlacedByTime placed =
        PlaceByTime(problems[i - 1], best.placed.seconds, effort);
    bound = std::min(bound, placed.bound);
    exact = exact && placed.exact;
    if (placed.fits()) best = {std::move(placed), &problems[i - 1]};
  }
  best.placed.bound = std::min(bound, best.placed.seconds);
  best.placed.exact = exact;
  return best;
}

double FleetPlanner::SecondsInOrder(const std::vector<int32_t>& order) const {
  double least = kNever;
  SplitRules rules;
  rules.least = rules.most = static_cast<int32_t>(order.size());
  for (const SplitProblem& problem : Problems(rules)) {
    least = std::min(least, PlaceInOrder(problem, order).seconds);
  }
  return least;
}

double FleetPlanner::SecondsByMemory() const {
  std::vector<uint64_t> memory;
  for (size_t i = 0; i < layers_.on.size(); ++i) {
    const uint64_t usable =
        UsableBytes((*layers_.machines)[At(layers_.on[i])].memory) /
        static_cast<uint64_t>(layers_.stages[i]);
    const bool is_last = i + 1 == layers_.on.size();
    if (usable <= needs_->work(is_last)) return kNever;
    for (int32_t stage = 0; stage < layers_.stages[i]; ++stage) {
      memory.push_back(usable - needs_->work(is_last));
    }
  }
  const auto ranges =
      SplitLayers(needs_->loads(), static_cast<int32_t>(memory.size()), memory);
  if (!ranges.ok()) return kNever;
  std::vector<StagePlan> stages;
  for (size_t i = 0, next = 0; i < layers_.on.size(); ++i) {
    for (int32_t stage = 0; stage < layers_.stages[i]; ++stage, ++next) {
      StagePlan& one = stages.emplace_back();
      one.machine = layers_.on[i];
      one.range = (*ranges)[next];
      one.bytes = needs_->loads().Of(one.range);
    }
  }
  return AimSeconds(stages);
}

std::vector<StagePlan> FleetPlanner::StagesOf(
    const std::vector<SplitPart>& parts) const {
  std::vector<StagePlan> stages;
  for (const SplitPart& part : parts) {
    const int32_t machine = layers_.on[At(part.machine)];
    const int32_t count = layers_.stages[At(part.machine)];
    const std::vector<LayerRange> ranges =
        count == 1 ? std::vector<LayerRange>{part.range}
                   : needs_->Cut(part.range, count);
    for (const LayerRange& range : ranges) {
      StagePlan& stage = stages.emplace_back();
      stage.machine = machine;
      stage.range = range;
      stage.bytes = needs_->loads().Of(range);
      stage.work = needs_->work(range.last == config_.num_layers());
      stage.memory = UsableBytes((*layers_.machines)[At(machine)].memory) /
                     static_cast<uint64_t>(count);
    }
  }
  return stages;
}

ClusterPlan FleetPlanner::Make(const PlacedByTime& placed) const {
  ClusterPlan plan = plan_;
  plan.stages = StagesOf(placed.split.parts);
  plan.seconds = placed.seconds;
  plan.bound = placed.bound;
  plan.is_best = placed.exact;
  GiveRoom(plan);
  Reckon(plan);
  const auto is_used = [&plan](int32_t machine) {
    const auto at = [machine](const auto& part) {
      return part.machine == machine;
    };
    return std::ranges::any_of(plan.stages, at) ||
           std::ranges::any_of(plan.hosts, at);
  };
  for (size_t i = 0; i < layers_.machines->size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (is_used(index)) {
      plan.price_per_hour += (*layers_.machines)[i].price_per_hour;
    } else {
      plan.left_out.push_back(index);
    }
  }
  return plan;
}

// Gives the KV cache the blocks that were asked for, as far as they fit on
// every stage.
void FleetPlanner::GiveRoom(ClusterPlan& plan) const {
  LayerLoadOptions options = Loads();
  const int64_t one =
      KvBlocksOfOne(config_, request_.context, options.max_step_tokens);
  options.kv_blocks = 1;
  const LayerLoads of_block = LoadsOf(config_, model_, options);
  int64_t state_blocks = kMaxKvBlocks;
  int64_t most = kMaxKvBlocks;  // blocks
  for (const StagePlan& stage : plan.stages) {
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
    most = std::min<int64_t>(most, static_cast<int64_t>(std::min<uint64_t>(
                                       kMaxKvBlocks, room / block)));
  }
  int64_t wanted = asked_sequences_;
  if (request_.sequences == 0) {
    for (const int32_t streams : request_.streams) {
      wanted = std::max<int64_t>(wanted, streams);
    }
  }
  wanted = std::min(wanted, kMostSequences);
  const int64_t asked = std::min(asked_sequences_ * one, kMaxKvBlocks);
  plan.kv_blocks =
      request_.loads.kv_blocks > 0
          ? request_.loads.kv_blocks
          : std::max(asked, std::min({wanted * one, most, kMaxKvBlocks}));
  // A sequence that runs holds up to two blocks of states.
  const int64_t by_state = std::min(kMostSequences, state_blocks / 2);
  plan.sequences = std::min(by_state, plan.kv_blocks / one);
  plan.most_sequences =
      std::max(plan.sequences, std::min(by_state, most / one));
  // Each group of layers takes blocks of its own.
  plan.kv_tokens = plan.kv_blocks * request_.context / one;
  options.kv_blocks = static_cast<int32_t>(plan.kv_blocks);
  const LayerLoads loads = LoadsOf(config_, model_, options);
  for (StagePlan& stage : plan.stages) stage.bytes = loads.Of(stage.range);
}

FleetPlanner::PromptSeconds FleetPlanner::PromptOf(
    const std::vector<StagePlan>& stages) const {
  PromptSeconds seconds;
  Pass behind;
  behind.busy.resize(layers_.machines->size());
  Pass all = behind;
  bool is_first = true;
  for (const StepShape& chunk :
       ChunksOf(request_.prompt_tokens, request_.loads.max_step_tokens)) {
    const Pass pass = times_->PassOf(stages, chunk);
    if (is_first) seconds.first_token = pass.all;
    for (size_t i = 0; i < pass.busy.size(); ++i) {
      if (!is_first) behind.busy[i] += pass.busy[i];
      all.busy[i] += pass.busy[i];
    }
    is_first = false;
  }
  seconds.first_token += behind.longest();
  seconds.busy = all.longest();
  return seconds;
}

double FleetPlanner::AimSeconds(const std::vector<StagePlan>& stages) const {
  if (request_.aim.is_prompt) return PromptOf(stages).first_token;
  return times_->StepSeconds(stages, request_.aim.streams, request_.context);
}

void FleetPlanner::Reckon(ClusterPlan& plan) const {
  const size_t next = plan.stages.size() > 1 ? 1 : 0;
  plan.hop_seconds =
      times_->HopSeconds(1, plan.stages[0].machine, plan.stages[next].machine);
  int32_t from = plan.stages[0].machine;
  for (StagePlan& stage : plan.stages) {
    stage.step_seconds = times_->StageSeconds(stage, {1, 1, request_.context});
    stage.hop_seconds = times_->HopSeconds(1, from, stage.machine);
    from = stage.machine;
  }
  for (const int32_t streams : request_.streams) {
    plan.speeds.push_back({streams, streams <= plan.sequences,
                           streams / times_->StepSeconds(plan.stages, streams,
                                                         request_.context)});
  }
  const PromptSeconds prompt = PromptOf(plan.stages);
  plan.ttft_seconds = prompt.first_token;
  plan.prompt_tokens_per_second = request_.prompt_tokens / prompt.busy;
}

Status FleetPlanner::TooLarge() const {
  const LeastMemory least = LeastMemoryFor(*needs_, layers_);
  const LayerRange all = {0, config_.num_layers()};
  const std::string asked = request_.loads.kv_blocks > 0
                                ? Cat(request_.loads.kv_blocks, " blocks")
                                : Cat(asked_sequences_, " sequences of ",
                                      request_.context, " tokens");
  std::string machines;
  for (size_t i = 0; i < layers_.on.size(); ++i) {
    machines +=
        Cat(i == 0 ? "" : ", ", (*layers_.machines)[At(layers_.on[i])].name,
            " ", least.memory[i]);
  }
  return ResourceExhausted("no split fits: weights take ", needs_->Weights(all),
                           " bytes, with keys and values of ", asked,
                           " and activations a stage of ", "all layers ",
                           needs_->Of(all), "; the machines give ", least.given,
                           ". The least that does is ", least.factor,
                           " times the memory of each (bytes: ", machines, ")");
}

}  // namespace sluice::placement
