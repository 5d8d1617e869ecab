#ifndef SLUICE_TESTS_ENGINE_FAKE_PIPELINE_H_
#define SLUICE_TESTS_ENGINE_FAKE_PIPELINE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/status.h"
#include "common/core/step_plan.h"

namespace sluice {

// A pipeline that computes nothing and forgets nothing. Its "KV cache" keeps,
// per slot, a digest of the whole history up to that position and of the KV
// group; every chunk asserts that the slots that it reads, in windowed groups
// the window's, hold the digests of exactly its own history, so any block
// handed out too early, shared wrongly, reused or let go shows at once.
// Tokens are a pure function of (history, seed), as a real sampler's are.
// Drafts are computed like tokens, and sampled behind while they are right.
//
// Plans are run when they are given, in order, as every stage does; their
// results are the caller's to hold back.
class FakePipeline {
 public:
  FakePipeline(Epoch epoch, const PlanLimits& limits);

  // INTERNAL naming the first thing a stage would object to.
  StatusOr<StepResult> Run(const StepPlan& plan);

  size_t num_sequences() const { return sequences_.size(); }
  // Chunks of more than one sequence in a plan, so far.
  int64_t tokens_computed() const { return tokens_computed_; }
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
    // Where the next chunk starts; below 0: nothing was computed yet.
    int32_t next_start = -1;
    StepId sampled_in;  // the latest token
  };

  Status RunStarted(const StartedSequence& started);
  StatusOr<SequenceResult> RunChunk(const Chunk& chunk);
  void Sample(const Chunk& chunk, Known& known, SequenceResult& result);
  Status ReadHistory(const Known& known, int32_t query, int32_t end) const;
  uint64_t& Slot(const Known& known, size_t group, int32_t position);

  const Epoch epoch_;
  const PlanLimits limits_;
  StepId next_step_;
  std::map<SequenceId, Known> sequences_;
  std::vector<uint64_t> slots_;  // of all KV groups
  int64_t tokens_computed_ = 0;
  int64_t chunks_ahead_ = 0;
  int64_t drafts_seen_ = 0;
  int64_t drafts_accepted_ = 0;
};

// Digest of a history.
uint64_t Digest(const TokenId* tokens, size_t count);

// What follows `tokens`: in [0, vocab_size), of the history and seed alone.
// `mask`: the tokens that may follow; null: all.
TokenId NextToken(const std::vector<TokenId>& tokens,
                  const SamplingParams& sampling, int32_t vocab_size,
                  const TokenMask* mask = nullptr);

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
