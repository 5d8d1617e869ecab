#include "common/serving/request_metrics.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/metrics/metric_names.h"

namespace sluice::serving {

namespace buckets = metrics::buckets;
namespace names = metrics::names;
using metrics::Labels;

namespace {

constexpr const char* kOutcomes[] = {"stop", "length", "abort", "error"};
constexpr const char* kRejections[] = {"queue_full", "draining", "unavailable",
                                       "too_large", "invalid"};

constexpr const char* kGrammarKinds[kNumGrammarKinds] = {
    "json_schema", "json_object", "regex", "choice", "grammar", "tools"};

Labels With(Labels labels, const std::string& name, const std::string& value) {
  labels[name] = value;
  return labels;
}

}  // namespace

RequestMetrics::RequestMetrics(const RequestMetricsOptions& options)
    : vllm_names_(options.vllm_names),
      vllm_labels_{{"model_name", options.model_name}, {"engine", "0"}} {
  tokenize_ = registry_.AddHistogram(names::kGatewayTokenizeSeconds,
                                     "Parsing, rendering and tokenizing",
                                     buckets::StepPart());
  detokenize_ =
      registry_.AddHistogram(names::kGatewayDetokenizeSeconds,
                             "An event's tokens to text", buckets::StepPart());
  for (size_t i = 0; i < std::size(kOutcomes); ++i) {
    outcomes_[i] =
        vllm().AddCounter(names::kVllmSuccess, "Sequences ended, by reason",
                          With(vllm_labels_, "finished_reason", kOutcomes[i]));
  }
  for (size_t i = 0; i < std::size(kRejections); ++i) {
    rejections_[i] = registry_.AddCounter(names::kGatewayRejections,
                                          "Requests refused, by reason",
                                          {{"reason", kRejections[i]}});
  }
  resumed_ = registry_.AddCounter(names::kGatewayResumedStreams,
                                  "Streams that went on where one was cut");
  for (size_t i = 0; i < std::size(kGrammarKinds); ++i) {
    grammars_[i] = registry_.AddCounter(names::kGatewayGrammarRequests,
                                        "Requests with a grammar, by kind",
                                        {{"kind", kGrammarKinds[i]}});
  }
  grammar_ =
      registry_.AddHistogram(names::kGatewayGrammarSeconds,
                             "Making a request's grammar", buckets::StepPart());
  AddHistograms(options.max_positions);
}

void RequestMetrics::AddHistograms(int max_positions) {
  const auto add = [this](std::string_view name, std::string_view help,
                          const std::vector<double>& bounds) {
    return vllm().AddHistogram(name, help, bounds, vllm_labels_);
  };
  const auto latency = buckets::RequestLatency();
  const auto tokens = buckets::TokenCount(std::max(max_positions, 1));
  ttft_ = add(names::kVllmTtft, "Arrival to first token", buckets::Ttft());
  itl_ = add(names::kVllmItl, "Between tokens", buckets::InterToken());
  tpot_alias_ = add(names::kVllmTimePerToken, "Between tokens (older name)",
                    buckets::InterToken());
  request_tpot_ =
      add(names::kVllmRequestTpot, "Mean time between a request's tokens",
          buckets::InterToken());
  e2e_ = add(names::kVllmE2e, "Arrival to last token", latency);
  queue_time_ = add(names::kVllmQueueTime, "Arrival to first step", latency);
  prefill_time_ =
      add(names::kVllmPrefillTime, "First step to first token", latency);
  decode_time_ =
      add(names::kVllmDecodeTime, "First token to last token", latency);
  inference_time_ =
      add(names::kVllmInferenceTime, "First step to last token", latency);
  prompt_tokens_ =
      add(names::kVllmRequestPromptTokens, "Prompt tokens", tokens);
  generation_tokens_ =
      add(names::kVllmRequestGenerationTokens, "Generated tokens", tokens);
  max_tokens_ =
      add(names::kVllmRequestMaxTokens, "max_tokens asked for", tokens);
  choices_ = add(names::kVllmRequestN, "Choices asked for", buckets::Choices());
  most_tokens_ = add(names::kVllmMaxGenerationTokens,
                     "Most tokens of a prompt's choices", tokens);
  prefill_computed_ = add(names::kVllmPrefillComputed,
                          "Prompt tokens not found in the cache", tokens);
  iteration_tokens_ =
      add(names::kVllmIterationTokens, "Tokens of a step, prompts' included",
          buckets::StepTokens());
}

void RequestMetrics::OnRejection(Rejection why) const {
  rejections_[static_cast<int>(why)].Add();
}

void RequestMetrics::OnGrammar(GrammarKind kind, double seconds) const {
  grammars_[static_cast<int>(kind)].Add();
  grammar_.Observe(seconds);
}

void RequestMetrics::OnNextTokens(double seconds, int count) const {
  for (int i = 0; i < count; ++i) {
    itl_.Observe(seconds / count);
    tpot_alias_.Observe(seconds / count);
  }
}

void RequestMetrics::OnSequenceEnd(Outcome outcome, const SequenceStats& stats,
                                   int max_tokens, double e2e_seconds) const {
  outcomes_[static_cast<int>(outcome)].Add();
  if (outcome == Outcome::kError) return;
  e2e_.Observe(e2e_seconds);
  queue_time_.Observe(Seconds(stats.queue_time));
  prefill_time_.Observe(Seconds(stats.prefill_time));
  decode_time_.Observe(Seconds(stats.decode_time));
  inference_time_.Observe(Seconds(stats.prefill_time + stats.decode_time));
  prompt_tokens_.Observe(stats.prompt_tokens);
  generation_tokens_.Observe(stats.completion_tokens);
  max_tokens_.Observe(max_tokens);
  prefill_computed_.Observe(stats.prompt_tokens - stats.cached_tokens);
  if (stats.completion_tokens > 1) {
    request_tpot_.Observe(Seconds(stats.decode_time) /
                          (stats.completion_tokens - 1));
  }
}

void RequestMetrics::OnPromptEnd(int choices, int most_tokens) const {
  choices_.Observe(choices);
  most_tokens_.Observe(most_tokens);
}

}  // namespace sluice::serving
