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
#include "common/core/token_constraint.h"

namespace sluice {

// A request to the engine, in tokens. The owner of the sink matches stop
// strings and cancels the request.
//
// `n` choices are n requests with the same `num_choices`, submitted one after
// another. They differ in sampling.choice and its consequences. Choices of one
// request_id, cache_salt and prompt compute the prompt once, also without a
// prefix cache: one choice leads, the others wait and share its full blocks.
// Each ends on its own; when the leader ends early, another choice leads. A
// choice with prompt_logprobs, return_logits or all hidden states computes its
// whole prompt, so one choice alone should want them. Sharing changes no token.
// SequenceStats::cached_tokens counts the tokens that were not computed; the
// least over the choices is what the cache gave the request.
struct GenerateRequest {
  std::string request_id;              // one per HTTP request
  std::vector<TokenId> prompt_tokens;  // at least one
  SamplingParams sampling;             // seed resolved
  int32_t num_choices = 1;             // of this request and prompt
  // The request's owner: the API key's name; empty without one. Tenants share
  // no cached prompts.
  std::string tenant;
  // The client, whose share of places, blocks and queue the request uses: the
  // tenant, or the peer's address on a server without keys. Clients take turns.
  std::string client;
  // Among the requests of one client a lower one starts first.
  int32_t priority = 0;
  int32_t max_tokens = 0;  // 0: only the prompt is computed (echo)
  // The model's own end tokens, in addition to sampling.stop_token_ids; empty
  // with ignore_eos.
  std::vector<TokenId> eos_token_ids;
  // Requests of one tenant and salt share the KV blocks of equal prefixes.
  std::string cache_salt;
  // When it passes, the request ends with DEADLINE_EXCEEDED, keeping its
  // tokens.
  std::optional<TimePoint> deadline;
  TimePoint arrival = Clock::now();
  // What holds the sequence to a grammar; null: nothing does. Of this sequence
  // alone, and not advanced yet. A complete answer ends the sequence, also with
  // ignore_eos and below min_tokens.
  std::shared_ptr<TokenConstraint> constraint;
  bool trace = false;  // the sink gets OnInbox, and OnStep for each step
};

enum class FinishReason {
  kStop,       // an end token was sampled, or the constraint is complete
  kLength,     // max_tokens or the context limit
  kCancelled,  // the client disconnected, or its stop string matched
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
  std::optional<TokenLogprob> logprob;  // of `token`, if asked for
  // Most likely first; those of SamplingParams::logprob_token_ids, in its
  // order.
  std::vector<TokenLogprob> top_logprobs;
  bool operator==(const TokenResult&) const = default;
};

// Tokens of one sequence, in order. `prompt` comes before any `tokens`: entry i
// is about prompt token i+1 (the first has no logprob).
struct TokenEvent {
  std::vector<TokenResult> tokens;
  std::vector<TokenResult> prompt;
  // Rows of this step if SamplingParams asks for them, with the position of the
  // first row: raw logits [.., V], or hidden states [.., H].
  std::vector<float> logits;
  int32_t logits_position = 0;
  // As in SequenceStats; nothing: this event does not tell.
  std::optional<int32_t> cached_tokens;
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
  std::optional<TokenId> stop_token;  // the end token, if one was sampled
  TokenResult stop_result;            // of stop_token, with its logprobs
  SequenceStats stats;
};

// Receives a sequence's tokens. The engine thread calls OnTokens any number of
// times, then OnEnd exactly once, also on refusal, cancel, shutdown and the
// crash of a stage. None may block: post and return. An end token is not
// delivered as a token. If OnTokens throws, the sequence ends with an error; if
// OnEnd throws, it is called once more.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // A plan begins to compute the sequence: before its first token, and again
  // after each preemption. Not called for a sequence that ends while it waits.
  virtual void OnStart() {}
  // The pipeline was lost; the sequence waits for the next one, and goes on
  // with the token that it would have had.
  virtual void OnSuspend() {}
  virtual void OnTokens(TokenEvent event) = 0;
  virtual void OnEnd(FinalEvent event) = 0;

  // Only with GenerateRequest::trace, from the engine thread: the time of the
  // request in the engine's inbox, once and first; and each step of the
  // sequence, before its tokens.
  virtual void OnInbox(const TraceSpan& inbox) {}
  virtual void OnStep(std::shared_ptr<const StepTrace> step,
                      const TracedChunk& chunk) {}
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_GENERATE_REQUEST_H_
