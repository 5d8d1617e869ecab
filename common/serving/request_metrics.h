#ifndef SLUICE_COMMON_SERVING_REQUEST_METRICS_H_
#define SLUICE_COMMON_SERVING_REQUEST_METRICS_H_

#include <string>

#include "common/core/generate_request.h"
#include "common/metrics/metrics.h"

namespace sluice::serving {

struct RequestMetricsOptions {
  std::string model_name;
  int max_positions = 4096;  // bounds the token-count histograms
  bool vllm_names = true;    // --metrics-compat=vllm
};

// The reason for refusing a request.
enum class Rejection {
  kQueueFull,
  kDraining,
  kUnavailable,
  kTooLong,
  kInvalid
};

// The kind of a request's grammar.
enum class GrammarKind {
  kJsonSchema,
  kJsonObject,
  kRegex,
  kChoice,
  kGrammar,  // Lark, GBNF
  kTools,
};
inline constexpr int kNumGrammarKinds = 6;

// The end of a sequence in metrics.
enum class Outcome { kStop, kLength, kAbort, kError };

// The series of requests, and the registry of all series. Any thread.
class RequestMetrics {
 public:
  explicit RequestMetrics(const RequestMetricsOptions& options);

  metrics::Registry& registry() { return registry_; }
  std::string Text() const { return registry_.Text(); }

  void OnRejection(Rejection why) const;
  void OnTokenized(double seconds) const { tokenize_.Observe(seconds); }
  // A request's grammar was made, in `seconds`.
  void OnGrammar(GrammarKind kind, double seconds) const;
  // An event's tokens were detokenized.
  void OnDetokenized(double seconds) const { detokenize_.Observe(seconds); }
  // The engine submitted a step of `tokens` tokens.
  void OnStep(int tokens) const { iteration_tokens_.Observe(tokens); }
  // Seconds from the request's arrival to its first token.
  void OnFirstToken(double seconds) const { ttft_.Observe(seconds); }
  // `count` tokens came `seconds` after the previous one.
  void OnNextTokens(double seconds, int count) const;
  void OnSequenceEnd(Outcome outcome, const SequenceStats& stats,
                     int max_tokens, double e2e_seconds) const;
  // A client goes on with a stream that was cut.
  void OnResume() const { resumed_.Add(); }
  // All choices of a prompt ended without error: their number, and the most
  // tokens that one of them generated.
  void OnPromptEnd(int choices, int most_tokens) const;

 protected:
  // The registry of vLLM's names: no scrape sees it while they are off.
  metrics::Registry& vllm() { return vllm_names_ ? registry_ : discarded_; }
  const metrics::Labels& vllm_labels() const { return vllm_labels_; }

 private:
  void AddHistograms(int max_positions);

  const bool vllm_names_;
  const metrics::Labels vllm_labels_;
  metrics::Registry registry_;
  metrics::Registry discarded_;
  metrics::Histogram tokenize_, detokenize_, grammar_, ttft_, itl_, tpot_alias_,
      request_tpot_, e2e_, queue_time_, prefill_time_, decode_time_,
      inference_time_, prompt_tokens_, generation_tokens_, max_tokens_,
      choices_, most_tokens_, prefill_computed_, iteration_tokens_;
  metrics::Counter outcomes_[4], rejections_[5], grammars_[kNumGrammarKinds],
      resumed_;
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_REQUEST_METRICS_H_
