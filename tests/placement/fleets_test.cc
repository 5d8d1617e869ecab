// Plans of random fleets beside every other split of their layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/kv_layout.h"
#include "common/placement/cluster_plan.h"
#include "common/placement/stage_memory.h"
#include "common/placement/step_cost.h"
#include "tests/placement/published_models.h"
#include "tests/placement/random_fleets.h"

namespace sluice::placement {
namespace {

constexpr double kNone = 1e300;

// Returns Llama 3.3 70B in BF16, GLM-4.5-Air in Q4_K or gpt-oss-120b (0 to 2)
// with so many layers.
PaperModel SmallModel(int which, int32_t layers) {
  const char* const configs[] = {kLlama70b, kGlmAir, kGptOss120b};
  Json json = *ParseJson(configs[which]);
  json["num_hidden_layers"] = layers;
  if (which == 1) return PaperModel(json.dump(), weights::DType::kQ4K);
  if (which == 2) {
    json["layer_types"] = Json::array();
    for (int32_t i = 0; i < layers; ++i) {
      json["layer_types"].push_back(i % 2 == 0 ? "sliding_attention"
                                               : "full_attention");
    }
  }
  return PaperModel(json.dump());
}

// Returns a plan's tokens per second with so many streams.
double SpeedOf(const ClusterPlan& plan, int32_t streams) {
  for (const StreamSpeed& speed : plan.speeds) {
    if (speed.streams == streams) return speed.tokens_per_second;
  }
  return 0;
}

// Every split of a request's layers, one after another: what PlanCluster finds
// is compared with it. Uses StepSeconds, LoadsOf and the sums of the room's
// README, and none of the search.
class EveryPlan {
 public:
  EveryPlan(const PaperModel& model, const PlanRequest& request)
      : model_(model),
        request_(request),
        machines_(request.machines.machines),
        layers_(model.config.num_layers()),
        products_(ProductsOf(model.config, *model.file, WeightsMode::kAuto)) {
    LayerLoadOptions loads = request.loads;
    loads.max_context = request.context;
    const int64_t sequences = request.aim.is_prompt ? 1 : request.aim.streams;
    loads.kv_blocks = static_cast<int32_t>(
        sequences *
        KvBlocksOfOne(model.config, request.context, loads.max_step_tokens));
    loads_ = LoadsOf(model.config, *model.file, loads);
  }

  double Least() {
    Extend(0);
    return least_;
  }

 private:
  struct Part {
    int32_t machine;
    LayerRange range;
  };

  bool Fits(const Part& part) const {
    const uint64_t bytes =
        loads_.Of(part.range).total() +
        WorkBytes(model_.config, request_.loads, part.range.last == layers_);
    return bytes <=
           UsableBytes(machines_[static_cast<size_t>(part.machine)].memory);
  }

  void Extend(int32_t layer) {
    if (layer == layers_) {
      least_ = std::min(least_, Seconds());
      return;
    }
    for (int32_t m = 0; m < static_cast<int32_t>(machines_.size()); ++m) {
      const auto is_used = [m](const Part& part) { return part.machine == m; };
      if (std::ranges::any_of(parts_, is_used)) continue;
      for (int32_t last = layer + 1; last <= layers_; ++last) {
        if (!Fits({m, {layer, last}})) break;
        parts_.push_back({m, {layer, last}});
        Extend(last);
        parts_.pop_back();
      }
    }
  }

  double StageSeconds(const Part& part, const StepShape& step) {
    auto& known = seconds_[{part.machine, part.range.first, part.range.last,
                            step.sequences, step.context}];
    if (known > 0) return known;
    const StageWork work = {
        &model_.config,          &products_, part.range,
        *request_.loads.kv_type, 1,          loads_.Of(part.range).weights};
    known = StepSeconds(
        work, machines_[static_cast<size_t>(part.machine)].rates, step);
    return known;
  }

  double Hop(double rows, int32_t from, int32_t to) const {
    const auto& rates = machines_[static_cast<size_t>(to)].rates;
    const double bytes = rows * model_.config.hidden_size * 4;
    const double software = 90e-6 + 3 * rates.wake_seconds;
    if (from == to) return software + bytes / 2e9;
    Link link = request_.machines.link;
    for (const PairLink& pair : request_.machines.links) {
      if ((pair.a == from && pair.b == to) ||
          (pair.a == to && pair.b == from)) {
        link = pair.link;
      }
    }
    return software + link.latency_seconds + bytes / link.bytes_per_second;
  }

  double Pass(const StepShape& step) {
    const int32_t gateway = parts_.front().machine;
    double all = Hop(0, gateway, gateway) +
                 Hop(0, parts_.back().machine, gateway) + Text(step);
    for (size_t i = 0; i < parts_.size(); ++i) {
      all += StageSeconds(parts_[i], step);
      if (i > 0) {
        all += Hop(static_cast<double>(step.rows()), parts_[i - 1].machine,
                   parts_[i].machine);
      }
    }
    return all;
  }

  double Text(const StepShape& step) const {
    const auto& rates =
        machines_[static_cast<size_t>(parts_.front().machine)].rates;
    if (rates.threads == 0) return 0;
    return static_cast<double>(step.sequences) * 60e-6 / rates.threads;
  }

  double Busy(size_t i, const StepShape& step) {
    return StageSeconds(parts_[i], step) + (i == 0 ? Text(step) : 0);
  }

  double Seconds() {
    if (request_.aim.is_prompt) return PromptSeconds();
    const int64_t streams = request_.aim.streams;
    const int64_t groups = std::min(static_cast<int64_t>(parts_.size()),
                                    std::max<int64_t>(1, streams / 4));
    const StepShape step = {(streams + groups - 1) / groups, 1,
                            request_.context};
    double longest = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      longest = std::max(longest, Busy(i, step));
    }
    return std::max(Pass(step), static_cast<double>(groups) * longest);
  }

  double PromptSeconds() {
    double first = 0;
    std::vector<double> behind(parts_.size());
    for (int32_t done = 0; done < request_.prompt_tokens;) {
      const int32_t chunk = std::min(request_.loads.max_step_tokens,
                                     request_.prompt_tokens - done);
      const StepShape step = {1, chunk, done};
      if (done == 0) first = Pass(step);
      for (size_t i = 0; done > 0 && i < parts_.size(); ++i) {
        behind[i] += Busy(i, step);
      }
      done += chunk;
    }
    return first + *std::ranges::max_element(behind);
  }

  const PaperModel& model_;
  const PlanRequest& request_;
  const std::vector<Machine>& machines_;
  const int32_t layers_;
  const ModelProducts products_;
  LayerLoads loads_;
  std::vector<Part> parts_;
  std::map<std::vector<int64_t>, double> seconds_;
  double least_ = kNone;
};

TEST(FleetsTest, ThePlanIsAsFastAsTheFastestOfAllSplits) {
  for (int fleet = 0; fleet < 20; ++fleet) {
    SCOPED_TRACE(fleet);
    const PaperModel model = SmallModel(fleet % 3, /*layers=*/7);
    RandomFleets fleets(static_cast<uint32_t>(fleet));
    PlanRequest request = fleets.Next(2 + fleet % 5, /*gigabytes=*/14);
    request.prompt_tokens = 1100;
    for (const PlanAim aim : {PlanAim{1, false}, PlanAim{9, false},
                              PlanAim{32, false}, PlanAim{1, true}}) {
      request.aim = aim;
      const double least = EveryPlan(model, request).Least();
      const auto plan = PlanCluster(model.config, *model.file, request);
      ASSERT_EQ(plan.ok(), least < kNone) << plan.status();
      if (!plan.ok()) continue;
      EXPECT_NEAR(plan->seconds, least, 1e-7 * least)
          << aim.streams << (aim.is_prompt ? " prompt" : " streams");
      EXPECT_TRUE(plan->is_best);
      // What the plan says of itself is reckoned from its stages.
      const double said = aim.is_prompt
                              ? plan->ttft_seconds
                              : aim.streams / SpeedOf(*plan, aim.streams);
      EXPECT_NEAR(said, plan->seconds, 1e-7 * least);
    }
  }
}

TEST(FleetLawsTest, AnotherMachineNeverMakesThePlanSlower) {
  for (uint32_t seed = 50; seed < 60; ++seed) {
    const PaperModel model =
        SmallModel(static_cast<int>(seed) % 3, /*layers=*/12);
    RandomFleets fleets(seed);
    const PlanRequest more = fleets.Next(5, /*gigabytes=*/20);
    for (const PlanAim aim :
         {PlanAim{1, false}, PlanAim{16, false}, PlanAim{1, true}}) {
      PlanRequest all = more;
      all.aim = aim;
      PlanRequest less = all;
      less.machines.machines.pop_back();
      const auto with = PlanCluster(model.config, *model.file, all);
      const auto without = PlanCluster(model.config, *model.file, less);
      if (!without.ok()) continue;
      ASSERT_TRUE(with.ok()) << with.status();
      EXPECT_LE(with->seconds, without->seconds * (1 + 1e-9)) << seed;
    }
  }
}

TEST(FleetLawsTest, MoreMemoryNeverMakesThePlanSlower) {
  for (uint32_t seed = 70; seed < 80; ++seed) {
    const PaperModel model =
        SmallModel(static_cast<int>(seed) % 3, /*layers=*/12);
    RandomFleets fleets(seed);
    PlanRequest request = fleets.Next(4, /*gigabytes=*/16);
    request.aim.streams = seed % 2 == 0 ? 1 : 16;
    const auto before = PlanCluster(model.config, *model.file, request);
    for (Machine& machine : request.machines.machines) {
      machine.memory += machine.memory / 4;
      const auto after = PlanCluster(model.config, *model.file, request);
      if (!before.ok()) continue;
      ASSERT_TRUE(after.ok()) << after.status();
      EXPECT_LE(after->seconds, before->seconds * (1 + 1e-9)) << seed;
    }
  }
}

TEST(FleetLawsTest, TheLeastMemoryThatARefusalNamesIsEnough) {
  const PaperModel model = SmallModel(0, /*layers=*/12);
  RandomFleets fleets(3);
  PlanRequest request = fleets.Next(3, /*gigabytes=*/6);
  for (Machine& machine : request.machines.machines) machine.memory /= 4;
  const auto refused = PlanCluster(model.config, *model.file, request);
  ASSERT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  const std::string words = Message(refused.status());
  const std::string before = "The least that does is ";
  const size_t at = words.find(before);
  ASSERT_NE(at, std::string::npos) << words;
  const double factor = std::stod(words.substr(at + before.size()));
  EXPECT_GT(factor, 1);
  const auto scaled = [&](double by) {
    PlanRequest other = request;
    for (Machine& machine : other.machines.machines) {
      machine.memory =
          static_cast<uint64_t>(static_cast<double>(machine.memory) * by);
    }
    return PlanCluster(model.config, *model.file, other);
  };
  EXPECT_TRUE(scaled(factor * (1 + 1e-6)).ok()) << words;
  EXPECT_FALSE(scaled(factor * 0.997).ok()) << words;
}

}  // namespace
}  // namespace sluice::placement
