#ifndef SLUICE_COMMON_CORE_GENERATE_REQUEST_H_
#define SLUICE_COMMON_CORE_GENERATE_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/core/ids.h"
#include "common/core/sampling_params.h"
#include "common/core/step_trace.h"

namespace sluice {

// A request to the engine, in tokens. The reader of the tokens matches stop
// strings and cancels the request.
//
// `n` choices are n requests that differ in sampling.choice (and what hangs on
// it) and are submitted one after another, with the same `num_choices`. Those
// of one request_id, cache_salt and prompt compute the prompt once, also
// without a prefix cache: one of them leads, the others wait for it and share
// its full blocks. Each ends on its own; when the leader ends early, another
// leads. A choice that wants prompt_logprobs or return_logits computes its
// whole prompt: ask for them in one choice. No choice's tokens depend on any
// of this. SequenceStats::cached_tokens counts what was not computed, so the
// least of the choices' is what the cache gave the request.
struct GenerateRequest {
  std::string request_id;              // one per HTTP request
  std::vector<TokenId> prompt_tokens;  // at least one
  SamplingParams sampling;             // seed resolved
  int32_t num_choices = 1;             // of this request and prompt
  // The request's owner: the API key's name; empty without one. Tenants share
  // no cached prompts.
  std::string tenant;
  // The client whose share of places, blocks and queue the request uses: the
  // tenant, or the peer's address on a server without keys. Clients take turns.
  std::string client;
  int32_t max_tokens = 0;  // 0: only the prompt is computed (echo)
  // Ends of generation, on top of sampling.stop_token_ids: the model's own
  // eos ids; empty with ignore_eos.
  std::vector<TokenId> eos_token_ids;
  // KV blocks of equal prefixes are shared among requests of one tenant and
  // salt.
  std::string cache_salt;
  // When it passes, the request ends with kError DEADLINE_EXCEEDED and keeps
  // its tokens.
  std::optional<TimePoint> deadline;
  TimePoint arrival = Clock::now();
  bool trace = false;  // the sink is told of the inbox and of every step
};

enum class FinishReason {
  kStop,       // an end token was sampled
  kLength,     // max_tokens or the context limit
  kCancelled,  // the client went away, or its stop string matched
  kError,      // see FinalEvent::status
};

const char* ToString(FinishReason reason);

// A token with its log-probability under the raw distribution (before
// temperature).
struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0f;
  int32_t rank = 0;  // 0: the most likely token
  bool operator==(const TokenLogprob&) const = default;
};

// One generated token, or one position of the prompt.
struct TokenResult {
  TokenId token = 0;
  std::optional<TokenLogprob> logprob;     // of `token`, if asked for
  std::vector<TokenLogprob> top_logprobs;  // most likely first
  bool operator==(const TokenResult&) const = default;
};

// Tokens of one sequence, in order. `prompt` comes before any `tokens`:
// entry i tells of prompt token i+1 (the first has no logprob).
struct TokenEvent {
  std::vector<TokenResult> tokens;
  std::vector<TokenResult> prompt;
  // Raw logits rows of this step if SamplingParams::return_logits, each V
  // floats, with the position of the first row.
  std::vector<float> logits;
  int32_t logits_position = 0;
};

// Timings and counts of a finished sequence.
struct SequenceStats {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt, found in the prefix cache
  int32_t completion_tokens = 0;
  int32_t preemptions = 0;
  Duration queue_time{};    // arrival to first schedule
  Duration prefill_time{};  // first schedule to first token
  Duration decode_time{};   // first token to last
};

struct FinalEvent {
  FinishReason reason = FinishReason::kStop;
  Status status;                      // not OK only with kError
  std::optional<TokenId> stop_token;  // the end token, with kStop
  TokenResult stop_result;            // of stop_token, with its logprobs
  SequenceStats stats;
};

// Receives a sequence's tokens. The engine thread calls OnTokens any number of
// times and then OnEnd exactly once, also on refusal, cancel, shutdown and
// crash of a stage. None may block: post and return. An end token is not
// delivered as a token. After an OnTokens that throws the sequence ends with an
// error; an OnEnd that throws is called once more.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // A plan begins to compute the sequence: before its first token, and again
  // after each preemption. Not called for one that ends while it waits.
  virtual void OnStart() {}
  virtual void OnTokens(TokenEvent event) = 0;
  virtual void OnEnd(FinalEvent event) = 0;

  // Only with GenerateRequest::trace, from the engine thread too: how long
  // the request lay in the engine's inbox, once and before all else; and each
  // step that carried the sequence, before the tokens that it gave.
  virtual void OnInbox(const TraceSpan& inbox) {}
  virtual void OnStep(std::shared_ptr<const StepTrace> step,
                      const TracedChunk& chunk) {}
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_GENERATE_REQUEST_H_
