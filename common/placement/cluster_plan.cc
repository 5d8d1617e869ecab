#include "common/placement/cluster_plan.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "common/model_config/kv_layout.h"
#include "common/model_config/rank_plan.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/fleet_planner.h"
#include "common/placement/plan_choices.h"

namespace sluice::placement {
namespace {

// Machines that may serve experts or layers of which every choice is tried.
constexpr size_t kMostAny = 6;

Status CheckRequest(const ModelConfig& config, const weights::ModelFile& model,
                    const PlanRequest& request) {
  const LayerLoadOptions& loads = request.loads;
  const auto kv_type = KvTypeOf(loads.kv_type, config, model, loads.weights);
  SLUICE_RETURN_IF_ERROR(CheckKvType(config, kv_type));
  const int32_t most =
      MostRanks(config, ColumnFormatsOf(config, model, loads.weights));
  if (loads.ranks < 1 || loads.ranks > most) {
    return InvalidArgument("ranks must be between 1 and ", most, ", got ",
                           loads.ranks);
  }
  const int32_t positions =
      std::min(config.max_position_embeddings, kMaxContext);
  for (const auto& [name, tokens] :
       {std::pair("context", request.context),
        std::pair("prompt", request.prompt_tokens)}) {
    if (tokens >= 1 && tokens <= positions) continue;
    return InvalidArgument(name, " must be between 1 and ", positions,
                           " tokens, got ", tokens);
  }
  if (request.aim.streams < 1) {
    return InvalidArgument("streams of the aim must be positive, got ",
                           request.aim.streams);
  }
  return OkStatus();
}

// Plans with each choice of hosts of experts, and keeps the fastest.
class Planner {
 public:
  Planner(const ModelConfig& config, const weights::ModelFile& model,
          const PlanRequest& request)
      : config_(config),
        model_(model),
        request_(request),
        products_(ProductsOf(config, model, request.loads.weights)) {}

  StatusOr<ClusterPlan> Run() {
    std::vector<int32_t> hosts;  // that the request names
    std::vector<int32_t> any;
    for (size_t i = 0; i < request_.machines.machines.size(); ++i) {
      const Machine& machine = request_.machines.machines[i];
      const auto index = static_cast<int32_t>(i);
      if (machine.serves_any && config_.moe().num_experts > 0) {
        any.push_back(index);
      } else if (machine.serves_experts && !machine.serves_any) {
        hosts.push_back(index);
      }
    }
    Try(hosts);
    if (any.size() <= kMostAny) {
      for (size_t set = 1; set < size_t{1} << any.size(); ++set) {
        Try(With(hosts, any, set));
      }
    } else {
      TryOneByOne(hosts, any);
    }
    if (!best_) return failure_;
    return *std::move(best_);
  }

 private:
  static std::vector<int32_t> With(std::vector<int32_t> hosts,
                                   const std::vector<int32_t>& any,
                                   size_t set) {
    for (size_t i = 0; i < any.size(); ++i) {
      if ((set >> i & 1) != 0) hosts.push_back(any[i]);
    }
    std::ranges::sort(hosts);
    return hosts;
  }

  // Lets machines serve experts as long as that makes the plan faster.
  void TryOneByOne(std::vector<int32_t> hosts, std::vector<int32_t> any) {
    for (bool faster = true; faster;) {
      faster = false;
      for (size_t i = 0; i < any.size() && !faster; ++i) {
        const std::vector<int32_t> more = With(hosts, {any[i]}, 1);
        faster = Try(more);
        if (!faster) continue;
        hosts = more;
        any.erase(any.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (best_) best_->is_best = false;
  }

  // Returns whether the plan with these hosts is the fastest so far.
  bool Try(const std::vector<int32_t>& hosts) {
    FleetPlanner planner(config_, model_, products_, request_);
    Status begun = planner.Begin(hosts);
    if (!begun.ok()) {
      if (failure_.ok()) failure_ = std::move(begun);
      return false;
    }
    const PlacedByTime placed = planner.SolveWithRoom();
    if (!placed.fits()) {
      if (failure_.ok()) failure_ = planner.TooLarge();
      return false;
    }
    if (best_ && placed.seconds >= best_->seconds) {
      best_->bound = std::min(best_->bound, placed.bound);
      best_->is_best = best_->is_best && placed.exact;
      return false;
    }
    const bool is_best = placed.exact && (!best_ || best_->is_best);
    const double bound =
        best_ ? std::min(best_->bound, placed.bound) : placed.bound;
    best_ = planner.Make(placed);
    best_->is_best = is_best;
    best_->bound = bound;
    if (request_.wants_choices) AddChoices(planner, placed, *best_);
    return true;
  }

  const ModelConfig& config_;
  const weights::ModelFile& model_;
  const PlanRequest& request_;
  const ModelProducts products_;
  Status failure_;
  std::optional<ClusterPlan> best_;
};

StatusOr<ClusterPlan> PlanOnce(const ModelConfig& config,
                               const weights::ModelFile& model,
                               const PlanRequest& request) {
  SLUICE_RETURN_IF_ERROR(CheckRequest(config, model, request));
  return Planner(config, model, request).Run();
}

}  // namespace

std::vector<uint64_t> StageMemory(const ClusterPlan& plan) {
  // In proportion to what the stages hold: any other split has a stage with
  // more layers, and so with a larger share.
  double times = std::numeric_limits<double>::max();
  for (const StagePlan& stage : plan.stages) {
    times = std::min(times, static_cast<double>(stage.memory - stage.work) /
                                static_cast<double>(stage.bytes.total()));
  }
  std::vector<uint64_t> memory;
  for (const StagePlan& stage : plan.stages) {
    memory.push_back(static_cast<uint64_t>(
        static_cast<double>(stage.bytes.total()) * std::max(times, 1.0)));
  }
  return memory;
}

StatusOr<ClusterPlan> PlanCluster(const ModelConfig& config,
                                  const weights::ModelFile& model,
                                  const PlanRequest& request) {
  auto plan = PlanOnce(config, model, request);
  if (plan.status().code() != StatusCode::kResourceExhausted) return plan;
  using kernels::WeightType;
  PlanRequest narrow = request;
  narrow.loads.kv_type = WeightType::kBf16;
  narrow.wants_choices = false;
  const auto kept =
      KvTypeOf(request.loads.kv_type, config, model, request.loads.weights);
  if (kept != WeightType::kF32 || !PlanOnce(config, model, narrow).ok())
    return plan;
  return ResourceExhausted(Message(plan.status()), "; with --kv-type bf16, ",
                           "keys and values of half the size, the plan fits");
}

double PricePerMillion(double price_per_hour, double tokens_per_second) {
  return price_per_hour / 3600 / tokens_per_second * 1e6;
}

}  // namespace sluice::placement
