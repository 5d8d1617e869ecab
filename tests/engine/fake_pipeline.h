#ifndef SLUICE_TESTS_ENGINE_FAKE_PIPELINE_H_
#define SLUICE_TESTS_ENGINE_FAKE_PIPELINE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/core/step_plan.h"
#include "tests/engine/fake_stages.h"

namespace sluice {

// A pipeline that computes nothing and forgets nothing. On each of its stages
// every chunk asserts that the slots that it reads, in windowed groups the
// window's, hold the digests of exactly its own history, so any block handed
// out too early, shared wrongly, reused or let go shows at once.
// Tokens are a pure function of (history, seed), as a real sampler's are.
// Drafts are computed like tokens, and sampled behind while they are right.
//
// Plans are run when they are given, in order; their results are the caller's
// to hold back.
class FakePipeline {
 public:
  // On one stage of its own.
  FakePipeline(Epoch epoch, const PlanLimits& limits);
  // `lags`: the stages' parts are left to FakeStages::Finish.
  FakePipeline(Epoch epoch, const PlanLimits& limits,
               std::shared_ptr<FakeStages> stages, bool lags);

  // INTERNAL naming the first thing a stage would object to.
  StatusOr<StepResult> Run(const StepPlan& plan);

  size_t num_sequences() const { return sequences_.size(); }
  int64_t tokens_computed() const { return tokens_computed_; }
  // Tokens that only the stages without them computed.
  int64_t tokens_replayed() const { return tokens_replayed_; }
  // Chunks whose token was not known when they were planned.
  int64_t chunks_ahead() const { return chunks_ahead_; }
  int64_t drafts_seen() const { return drafts_seen_; }
  int64_t drafts_accepted() const { return drafts_accepted_; }

 private:
  struct Known {
    SamplingParams sampling;
    int32_t num_prompt_tokens = 0;
    std::vector<TokenId> tokens;
    std::vector<std::vector<BlockId>> blocks;  // per KV group
    int32_t next_start = 0;                    // of a chunk
    int32_t kept_end = 0;                      // chunks before it are replays
    int32_t hit_end = 0;  // blocks before it are shared with the cache
    StepId sampled_in;    // the latest token
  };

  Status RunStarted(const StepPlan& plan, const StartedSequence& started);
  StatusOr<SequenceResult> RunChunk(const StepPlan& plan, const Chunk& chunk);
  FakeStages::Part PartOf(const StepPlan& plan, SequenceId sequence,
                          const Known& known) const;
  void Sample(const Chunk& chunk, Known& known, SequenceResult& result);

  const Epoch epoch_;
  const PlanLimits limits_;
  StepId next_step_;
  std::map<SequenceId, Known> sequences_;
  const std::shared_ptr<FakeStages> stages_;
  const bool lags_;
  int64_t tokens_computed_ = 0;
  int64_t tokens_replayed_ = 0;
  int64_t chunks_ahead_ = 0;
  int64_t drafts_seen_ = 0;
  int64_t drafts_accepted_ = 0;
};

// What follows `tokens`: in [0, vocab_size), of the history and seed alone.
// `mask`: the tokens that may follow; null: all.
TokenId NextToken(const std::vector<TokenId>& tokens,
                  const SamplingParams& sampling, int32_t vocab_size,
                  const TokenMask* mask = nullptr);

// The logit of a token behind a history with that digest.
float LogitOf(uint64_t digest, int32_t token);
// Returns `token`, with the logprobs that a request for `num_logprobs` gets
// behind a history with that digest.
TokenResult WithLogprob(TokenId token, int32_t num_logprobs, uint64_t digest);

// The tokens a request must get whatever else runs, and how it must end. A
// constraint must be a FakeConstraint.
struct Expected {
  std::vector<TokenId> tokens;
  FinishReason reason = FinishReason::kLength;
  bool operator==(const Expected&) const = default;
};
Expected Undisturbed(const GenerateRequest& request, int32_t vocab_size);

}  // namespace sluice

#endif  // SLUICE_TESTS_ENGINE_FAKE_PIPELINE_H_
