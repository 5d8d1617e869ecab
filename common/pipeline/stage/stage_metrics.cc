#include "common/pipeline/stage/stage_metrics.h"

#include "common/base/cat.h"
#include "common/core/epochs.h"
#include "common/metrics/metric_names.h"
#include "common/metrics/rpc_metrics.h"

namespace sluice {
namespace {

namespace names = metrics::names;
namespace buckets = metrics::buckets;

constexpr double kNano = 1e-9;
constexpr char kWaitHelp[] = "Time a step waits.";

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
  AddStepSeries();
  AddGauges();
  SetState(State::kLoading);
}

void StageMetrics::AddStepSeries() {
  const char* phases[] = {"prefill", "decode", "mixed"};
  for (size_t i = 0; i < step_seconds_.size(); ++i) {
    step_seconds_[i] = registry_->AddHistogram(
        names::kStageStepSeconds, "Step from its arrival to its output.",
        buckets::StepPart(), {{"phase", phases[i]}});
  }
  const char* peers[] = {"previous", "next", "gateway"};
  const char* directions[] = {"in", "out", "out"};
  for (size_t i = 0; i < wire_.size(); ++i) {
    const metrics::Labels labels = {{"dir", directions[i]}, {"peer", peers[i]}};
    wire_[i].bytes = registry_->AddCounter(
        names::kStageWireBytes, "Bytes of steps and results.", labels);
    wire_[i].messages = registry_->AddCounter(names::kStageWireMessages,
                                              "Steps and results.", labels);
  }
  const auto histogram = [this](std::string_view name, const char* help,
                                const metrics::Labels& labels = {}) {
    return registry_->AddHistogram(name, help, buckets::StepPart(), labels);
  };
  compute_seconds_ =
      histogram(names::kStageComputeSeconds, "Time a step is computed.");
  input_wait_ =
      histogram(names::kStageWaitSeconds, kWaitHelp, {{"for", "input"}});
  window_wait_ = histogram(names::kStageWaitSeconds, kWaitHelp,
                           {{"for", "output_window"}});
  serialize_seconds_ =
      histogram(names::kStageSerializeSeconds, "Time to write a step's frame.");
  hop_seconds_ = histogram(names::kStageHopSeconds,
                           "Step sent to ack received, less its time there.");
  batch_sequences_ =
      registry_->AddHistogram(names::kStageBatchSequences,
                              "Sequences of a step.", buckets::BatchSize());
  batch_tokens_ = registry_->AddHistogram(
      names::kStageBatchTokens, "Tokens of a step.", buckets::BatchSize());
  const char* outcomes[] = {"broken", "whole"};
  for (size_t i = 0; i < kv_copies_.size(); ++i) {
    kv_copies_[i] = registry_->AddCounter(
        names::kStageKvCopies, "Copies of keys and values to this stage.",
        {{"outcome", outcomes[i]}});
  }
  kv_copied_bytes_ = registry_->AddCounter(names::kStageKvCopiedBytes,
                                           "Bytes of these copies.");
  kv_copy_seconds_ = registry_->AddCounter(names::kStageKvCopySeconds,
                                           "Time of these copies.");
  steps_ = registry_->AddCounter(names::kStageSteps, "Steps computed.");
  steps_ahead_ =
      registry_->AddCounter(names::kStageStepsAhead,
                            "Steps begun before the step before was finished.");
  tokens_ = registry_->AddCounter(names::kStageTokens, "Tokens computed.");
}

void StageMetrics::AddGauges() {
  const char* states[] = {"loading", "ready", "draining", "failed"};
  for (size_t i = 0; i < state_.size(); ++i) {
    state_[i] = registry_->AddGauge(names::kStageState,
                                    "1 for the state that the stage is in.",
                                    {{"state", states[i]}});
  }
  busy_ratio_ = registry_->AddGauge(
      names::kStageBusyRatio, "Share of the loop's time spent computing.");
  queue_depth_ =
      registry_->AddGauge(names::kStageQueueDepth, "Steps that wait.");
  sequences_ = registry_->AddGauge(names::kStageSequences,
                                   "Sequences that have begun and not ended.");
  kv_blocks_ = registry_->AddGauge(names::kStageKvBlocks, "KV blocks in all.");
  kv_blocks_used_ = registry_->AddGauge(names::kStageKvBlocksUsed,
                                        "KV blocks of those sequences.");
  kv_blocks_peak_ = registry_->AddGauge(
      names::kStageKvBlocksPeak, "The most of them since the epoch began.");
  kv_bytes_ =
      registry_->AddGauge(names::kStageKvBytes, "Bytes of the KV cache.");
  weights_bytes_ =
      registry_->AddGauge(names::kStageWeightsBytes, "Bytes of the weights.");
  load_seconds_ = registry_->AddGauge(names::kStageLoadSeconds,
                                      "Time it took to load the weights.");
  first_layer_ =
      registry_->AddGauge(names::kStageFirstLayer, "The first of its layers.");
  num_layers_ =
      registry_->AddGauge(names::kStageNumLayers, "Layers that it holds now.");
  epoch_ = registry_->AddGauge(names::kStageEpoch, "Current epoch.");
}

void StageMetrics::AddRankSeries(int32_t ranks) {
  const auto histogram = [this](std::string_view name, const char* help,
                                const metrics::Labels& labels) {
    return registry_->AddHistogram(name, help, buckets::StepPart(), labels);
  };
  collective_wait_ =
      histogram(names::kStageWaitSeconds, kWaitHelp, {{"for", "collective"}});
  const char* help =
      "Rank 0's time in collectives of a step; on a GPU, of its stream.";
  reduce_seconds_ =
      histogram(names::kStageCollectiveSeconds, help, {{"op", "reduce"}});
  gather_seconds_ =
      histogram(names::kStageCollectiveSeconds, help, {{"op", "gather"}});
  for (int32_t rank = 0; rank < ranks; ++rank) {
    rank_wait_.push_back(registry_->AddCounter(
        names::kStageRankWaitSeconds,
        "Time that a rank waited for the others, summed over steps.",
        {{"tp_rank", Cat(rank)}}));
  }
}

void StageMetrics::SetState(State state) {
  for (size_t i = 0; i < state_.size(); ++i) {
    state_[i].Set(i == static_cast<size_t>(state) ? 1 : 0);
  }
}

void StageMetrics::OnLoaded(const StageInfo& info) {
  if (info.ranks > 1 && rank_wait_.empty()) AddRankSeries(info.ranks);
  kv_blocks_.Set(info.limits.num_blocks);
  kv_bytes_.Set(static_cast<double>(info.kv_bytes));
  weights_bytes_.Set(static_cast<double>(info.weights_bytes));
  load_seconds_.Set(info.load_seconds);
  first_layer_.Set(info.first_layer);
  num_layers_.Set(info.last_layer - info.first_layer);
}

void StageMetrics::OnStats(const StageLoopStats& stats) {
  const double total = stats.compute_seconds + stats.wait_seconds;
  busy_ratio_.Set(total > 0 ? stats.compute_seconds / total : 0);
  queue_depth_.Set(stats.queue_depth);
  sequences_.Set(stats.sequences);
  kv_blocks_used_.Set(stats.kv_blocks_used);
  kv_blocks_peak_.Set(stats.kv_blocks_peak);
  epoch_.Set(EpochMetric(stats.epoch));
  steps_.AdvanceTo(static_cast<double>(stats.steps));
  steps_ahead_.AdvanceTo(static_cast<double>(stats.steps_ahead));
  tokens_.AdvanceTo(static_cast<double>(stats.tokens));
}

void StageMetrics::OnStep(const StepOutput& output) {
  if (output.plan.chunks.empty()) return;  // a probe, or ends alone
  const double wait = static_cast<double>(output.timing.wait_ns) * kNano;
  const double compute = static_cast<double>(output.timing.compute_ns) * kNano;
  step_seconds_[PhaseOf(output.plan)].Observe(wait + compute);
  input_wait_.Observe(wait);
  compute_seconds_.Observe(compute);
  batch_sequences_.Observe(static_cast<double>(output.plan.chunks.size()));
  batch_tokens_.Observe(output.plan.num_tokens());
  for (size_t i = 0; i < output.ranks.size() && i < rank_wait_.size(); ++i) {
    const CollectiveTimes& times = output.ranks[i];
    // While a rank's thread waits for others its device may do the same.
    const double waited = kNano * static_cast<double>(std::max(
                                      times.wait_ns, times.device_wait_ns));
    rank_wait_[i].Add(waited);
    if (i > 0) continue;
    collective_wait_.Observe(waited);
    if (!times.measured) continue;
    reduce_seconds_.Observe(static_cast<double>(times.reduce_ns) * kNano);
    gather_seconds_.Observe(static_cast<double>(times.gather_ns) * kNano);
  }
}

void StageMetrics::OnWire(Peer peer, int64_t bytes) {
  Wire& wire = wire_[static_cast<size_t>(peer)];
  wire.bytes.Add(static_cast<double>(bytes));
  wire.messages.Add();
}

void StageMetrics::OnSerialized(int64_t nanos) {
  serialize_seconds_.Observe(static_cast<double>(nanos) * kNano);
}

void StageMetrics::OnWindow(int64_t nanos) {
  window_wait_.Observe(static_cast<double>(nanos) * kNano);
}

void StageMetrics::OnHop(int64_t nanos) {
  hop_seconds_.Observe(static_cast<double>(nanos) * kNano);
}

void StageMetrics::OnCopied(bool is_whole, uint64_t bytes, int64_t nanos) {
  kv_copies_[is_whole ? 1 : 0].Add();
  kv_copied_bytes_.Add(static_cast<double>(bytes));
  kv_copy_seconds_.Add(static_cast<double>(nanos) * kNano);
}

void StageMetrics::OnHandled(const std::string& method, StatusCode code,
                             Duration duration) {
  metrics::RecordHandled(
      *registry_,
      {"sluice.v1.Stage", method,
       method == "Results" ? "server_stream" : "bidi_stream", code, duration});
}

}  // namespace sluice
