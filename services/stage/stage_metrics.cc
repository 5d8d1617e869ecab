#include "services/stage/stage_metrics.h"

#include "common/metrics/code_label.h"
#include "common/metrics/metric_names.h"

namespace sluice {
namespace {

namespace names = metrics::names;
namespace buckets = metrics::buckets;

constexpr double kNano = 1e-9;

// 0: all chunks are prompts, 1: all are single tokens, 2: both.
size_t PhaseOf(const StepPlan& plan) {
  bool prefill = false;
  bool decode = false;
  for (const Chunk& chunk : plan.chunks) {
    (chunk.tokens.size() > 1 ? prefill : decode) = true;
  }
  if (!prefill) return 1;
  return decode ? 2 : 0;
}

}  // namespace

StageMetrics::StageMetrics(metrics::Registry* registry) : registry_(registry) {
  const char* phases[] = {"prefill", "decode", "mixed"};
  for (size_t i = 0; i < step_seconds_.size(); ++i) {
    step_seconds_[i] = registry->AddHistogram(
        names::kStageStepSeconds, "Step from its arrival to its output.",
        buckets::StepPart(), {{"phase", phases[i]}});
  }
  const char* peers[] = {"previous", "next", "gateway"};
  const char* directions[] = {"in", "out", "out"};
  for (size_t i = 0; i < wire_.size(); ++i) {
    const metrics::Labels labels = {{"dir", directions[i]}, {"peer", peers[i]}};
    wire_[i].bytes = registry->AddCounter(
        names::kStageWireBytes, "Bytes of steps and results.", labels);
    wire_[i].messages = registry->AddCounter(names::kStageWireMessages,
                                             "Steps and results.", labels);
  }
  const char* states[] = {"loading", "ready", "draining", "failed"};
  for (size_t i = 0; i < state_.size(); ++i) {
    state_[i] = registry->AddGauge(names::kStageState,
                                   "1 for the state that the stage is in.",
                                   {{"state", states[i]}});
  }
  auto histogram = [registry](std::string_view name, const char* help,
                              const metrics::Labels& labels = {}) {
    return registry->AddHistogram(name, help, buckets::StepPart(), labels);
  };
  compute_seconds_ =
      histogram(names::kStageComputeSeconds, "Time a step is computed.");
  wait_seconds_ =
      histogram(names::kStageWaitSeconds, "Time a step waits in the queue.",
                {{"for", "input"}});
  serialize_seconds_ =
      histogram(names::kStageSerializeSeconds, "Time to write a step's frame.");
  hop_seconds_ = histogram(names::kStageHopSeconds,
                           "Step sent to ack received, less its time there.");
  batch_sequences_ =
      registry->AddHistogram(names::kStageBatchSequences,
                             "Sequences of a step.", buckets::BatchSize());
  batch_tokens_ = registry->AddHistogram(
      names::kStageBatchTokens, "Tokens of a step.", buckets::BatchSize());
  busy_ratio_ = registry->AddGauge(names::kStageBusyRatio,
                                   "Share of the loop's time spent computing.");
  queue_depth_ =
      registry->AddGauge(names::kStageQueueDepth, "Steps that wait.");
  kv_blocks_ = registry->AddGauge(names::kStageKvBlocks, "KV blocks in all.");
  kv_blocks_used_ = registry->AddGauge(
      names::kStageKvBlocksUsed, "Highest number of KV blocks alive at once.");
  kv_bytes_ =
      registry->AddGauge(names::kStageKvBytes, "Bytes of the KV cache.");
  weights_bytes_ =
      registry->AddGauge(names::kStageWeightsBytes, "Bytes of the weights.");
  load_seconds_ = registry->AddGauge(names::kStageLoadSeconds,
                                     "Time it took to load the weights.");
  epoch_ = registry->AddGauge(names::kStageEpoch, "Current epoch.");
  steps_ = registry->AddCounter(names::kStageSteps, "Steps computed.");
  tokens_ = registry->AddCounter(names::kStageTokens, "Tokens computed.");
  SetState(State::kLoading);
}

void StageMetrics::SetState(State state) {
  for (size_t i = 0; i < state_.size(); ++i) {
    state_[i].Set(i == static_cast<size_t>(state) ? 1 : 0);
  }
}

void StageMetrics::OnLoaded(const StageInfo& info) {
  kv_blocks_.Set(info.limits.num_blocks);
  kv_bytes_.Set(static_cast<double>(info.kv_bytes));
  weights_bytes_.Set(static_cast<double>(info.weights_bytes));
  load_seconds_.Set(info.load_seconds);
  SetState(State::kReady);
}

void StageMetrics::OnStats(const StageLoopStats& stats) {
  const double total = stats.compute_seconds + stats.wait_seconds;
  busy_ratio_.Set(total > 0 ? stats.compute_seconds / total : 0);
  queue_depth_.Set(stats.queue_depth);
  kv_blocks_used_.Set(stats.kv_blocks_used);
  epoch_.Set(static_cast<double>(stats.epoch.value()));
  steps_.AdvanceTo(static_cast<double>(stats.steps));
  tokens_.AdvanceTo(static_cast<double>(stats.tokens));
}

void StageMetrics::OnStep(const StepOutput& output) {
  if (output.plan.chunks.empty()) return;  // a probe, or ends alone
  const double wait = static_cast<double>(output.timing.wait_ns) * kNano;
  const double compute = static_cast<double>(output.timing.compute_ns) * kNano;
  step_seconds_[PhaseOf(output.plan)].Observe(wait + compute);
  wait_seconds_.Observe(wait);
  compute_seconds_.Observe(compute);
  batch_sequences_.Observe(static_cast<double>(output.plan.chunks.size()));
  batch_tokens_.Observe(output.plan.num_tokens());
}

void StageMetrics::OnWire(Peer peer, int64_t bytes) {
  Wire& wire = wire_[static_cast<size_t>(peer)];
  wire.bytes.Add(static_cast<double>(bytes));
  wire.messages.Add();
}

void StageMetrics::OnSerialized(int64_t nanos) {
  serialize_seconds_.Observe(static_cast<double>(nanos) * kNano);
}

void StageMetrics::OnHop(int64_t nanos) {
  hop_seconds_.Observe(static_cast<double>(nanos) * kNano);
}

void StageMetrics::OnHandled(const std::string& method, StatusCode code,
                             Duration duration) {
  const metrics::Labels labels = {
      {"grpc_service", "sluice.v1.Stage"},
      {"grpc_method", method},
      {"grpc_type", method == "Results" ? "server_stream" : "bidi_stream"}};
  metrics::Labels handled = labels;
  handled["grpc_code"] = metrics::CodeLabel(code);
  registry_->AddCounter(names::kGrpcHandled, "RPCs that have ended.", handled)
      .Add();
  registry_
      ->AddHistogram(names::kGrpcHandlingSeconds, "Time from start to end.",
                     buckets::RequestLatency(), labels)
      .Observe(Seconds(duration));
}

}  // namespace sluice
