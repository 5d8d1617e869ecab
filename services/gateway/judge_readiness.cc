#include "services/gateway/judge_readiness.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/cat.h"

namespace sluice::gateway {
namespace {

constexpr int kFarBeyond = 10;  // times the expected time
constexpr Duration kShortest = std::chrono::milliseconds(2500);
constexpr Duration kLongest = std::chrono::seconds(60);

serving::PartReadiness PartOf(const StageStatus& stage, size_t index) {
  serving::PartReadiness part;
  part.name = Cat("stage ", index, " (", stage.address, ")");
  part.open_name = Cat("stage ", index);
  if (stage.last_layer > 0) {
    part.open_name +=
        Cat(" (layers ", stage.first_layer, " to ", stage.last_layer - 1, ")");
  }
  part.ready = stage.state == StageState::kReady;
  if (!part.ready) {
    part.why = part.open_why = ToString(stage.state);
    if (!stage.message.empty()) part.why += ": " + stage.message;
  } else if (stage.load.experts_missing) {
    part.ready = false;
    part.why = part.open_why = "some of its experts have no host left";
  }
  return part;
}

// Names the stage that holds up the others.
void NameStuckStage(const PipelineStatus& pipeline,
                    serving::Readiness& readiness) {
  const auto stuck =
      std::min_element(pipeline.stages.begin(), pipeline.stages.end(),
                       [](const StageStatus& a, const StageStatus& b) {
                         return a.load.steps_done < b.load.steps_done;
                       });
  if (stuck == pipeline.stages.end()) return;
  serving::PartReadiness& part =
      readiness.parts[static_cast<size_t>(stuck - pipeline.stages.begin())];
  part.ready = false;
  part.why = part.open_why = "answers and does no step";
  readiness.why = Cat(part.name, ": ", readiness.why);
  readiness.open_why = Cat(part.open_name, ": ", readiness.open_why);
}

bool AnyDrains(const PipelineStatus& pipeline) {
  return std::any_of(pipeline.stages.begin(), pipeline.stages.end(),
                     [](const StageStatus& stage) {
                       return stage.state == StageState::kDraining;
                     });
}

bool AnyLoads(const PipelineStatus& pipeline) {
  return std::any_of(pipeline.stages.begin(), pipeline.stages.end(),
                     [](const StageStatus& stage) {
                       return stage.state == StageState::kLoading;
                     });
}

// Returns why the pipeline is not ready, by its stages' states alone.
std::string OpenWhy(const serving::Readiness& readiness) {
  for (const serving::PartReadiness& part : readiness.parts) {
    if (!part.ready) return Cat(part.open_name, ": ", part.open_why);
  }
  return readiness.ready ? "" : "the pipeline is not up";
}

}  // namespace

Duration StuckAfter(Duration expected_step) {
  if (expected_step <= Duration::zero()) return kLongest;
  return std::clamp(kFarBeyond * expected_step, kShortest, kLongest);
}

int RetryAfter(const PipelineStatus& pipeline, bool draining) {
  if (draining) return 1;
  Duration wait{};
  for (const StageStatus& stage : pipeline.stages) {
    wait = std::max(wait, stage.drain_left);
  }
  if (wait > Duration::zero()) {
    wait += pipeline.last_recovery;
  } else if (pipeline.down < pipeline.last_recovery &&
             pipeline.down > Duration::zero()) {
    wait = pipeline.last_recovery - pipeline.down;
  } else {
    wait = pipeline.down;
  }
  return static_cast<int>(std::clamp(std::ceil(Seconds(wait)), 1.0, 30.0));
}

serving::Readiness JudgeReadiness(const PipelineStatus& pipeline,
                                  const EngineProgress& progress,
                                  bool draining) {
  serving::Readiness readiness;
  readiness.ready = pipeline.ready;
  readiness.why = pipeline.message;
  readiness.epoch = pipeline.epoch.count();
  readiness.term = pipeline.epoch.term();
  readiness.is_up = pipeline.down == Duration::zero();
  readiness.missing = AnyLoads(pipeline) ? Duration::zero() : pipeline.down;
  readiness.missing_stages =
      std::max(0, static_cast<int>(pipeline.full_count) -
                      static_cast<int>(pipeline.stages.size()));
  for (size_t i = 0; i < pipeline.stages.size(); ++i) {
    readiness.parts.push_back(PartOf(pipeline.stages[i], i));
  }
  readiness.open_why = OpenWhy(readiness);
  readiness.retry_after_seconds = RetryAfter(pipeline, draining);
  readiness.draining = draining || AnyDrains(pipeline);
  for (size_t i = 0; i < readiness.parts.size() && readiness.ready; ++i) {
    if (!pipeline.stages[i].load.experts_missing) continue;
    readiness.ready = false;
    readiness.why = Cat(readiness.parts[i].name, ": ", readiness.parts[i].why);
  }
  if (readiness.ready && !progress.pipeline_up) {
    readiness.ready = false;
    readiness.why = readiness.open_why = "the engine has no pipeline yet";
  } else if (readiness.ready &&
             progress.oldest_plan_age > StuckAfter(progress.expected_step)) {
    readiness.ready = false;
    readiness.why = readiness.open_why =
        Cat("no step has ended for ", Seconds(progress.oldest_plan_age), " s");
    NameStuckStage(pipeline, readiness);
  }
  if (draining) {
    readiness.ready = false;
    readiness.why = readiness.open_why = "draining";
  }
  return readiness;
}

serving::Readiness JudgeBesidePeers(serving::Readiness own,
                                    const standby::Standing& standing,
                                    const std::vector<std::string>& stages) {
  own.role = ToString(standing.role);
  own.stages = stages;
  own.pipeline = standing.pipeline;
  if (standing.role == GatewayRole::kLeader) return own;
  own.leader = standing.leader;
  own.parts.clear();
  own.missing_stages = 0;
  own.ready = standing.ready;
  own.retry_after_seconds = 1;
  if (standing.ready || !standing.why.empty()) {
    own.why = standing.why;
    own.open_why = standing.open_why;
  }
  return own;
}

}  // namespace sluice::gateway
