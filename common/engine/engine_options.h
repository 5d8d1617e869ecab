#ifndef SLUICE_COMMON_ENGINE_ENGINE_OPTIONS_H_
#define SLUICE_COMMON_ENGINE_ENGINE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/generate_request.h"
#include "common/core/ids.h"
#include "common/core/sampling_params.h"
#include "common/core/step_plan.h"

namespace sluice {

// Returns guesses at the tokens that follow `tokens`, drawn with `sampling`: at
// most `limit` (above 0), each within the vocabulary. The engine thread calls
// it for every decode. It must not throw.
using DraftProposer = std::function<std::vector<TokenId>(
    std::span<const TokenId> tokens, const SamplingParams& sampling,
    int32_t limit)>;

struct EngineOptions {
  ReplicaId replica;
  int max_running = 64;  // sequences holding blocks at once
  int max_queue = 256;   // accepted beyond those that may run
  // The places, and the waiting sequences, that one client may have while
  // another client waits. 0: an equal share.
  int max_running_per_client = 0;
  int max_queue_per_client = 0;
  // The time after which a sequence of a client above its share gives its place
  // to another client's waiting sequence.
  Duration place_turn = std::chrono::milliseconds(500);
  // A request with a longer expected wait for its first step is refused.
  Duration max_queue_wait = std::chrono::seconds(30);
  // How long the sequences of a lost pipeline wait for the next one. Zero: they
  // end with the pipeline.
  Duration recovery_timeout{};
  // A sequence ends if more pipelines than this are lost, one after another,
  // while they compute it. On its last try it runs alone, so that the end of a
  // sequence that kills its stages is its own.
  int max_replays = 2;
  // The time that a step with decodes may take; prompts get what fits. Zero:
  // StepPace::kMaxSlowdown times the time without prompts.
  Duration target_itl{};
  int max_step_tokens = 512;  // lowered to the pipeline's limit
  // Tokens of one prompt per plan; 0: no cap; kHalfStep: half of the step's,
  // at least kLeastChunk.
  int prefill_chunk = kLeastChunk;
  static constexpr int kHalfStep = -1;
  static constexpr int kLeastChunk = 256;
  bool prefix_cache = true;
  // Blocks that no sequence holds for this long, while no plan is in flight,
  // are forgotten, and the stages give their memory back. Zero: never.
  Duration prefix_idle = std::chrono::seconds(300);
  int max_plans_in_flight = 0;  // 0: one per stage
  // Plans go ahead (see BatchPolicy::GoesAhead, PromptsGoAhead) while a plan of
  // decodes takes at most this long from its turn to its result, and a full
  // plan of prompts 20 times as long; zero: none does. Going ahead saves the
  // time from a result to the next plan, some 0.1 ms; a new request may lose
  // the time of one plan.
  Duration ahead_within{};
  // Decodes are spread over the plans in flight only from this many per plan: a
  // smaller batch costs a stage about as much as this one.
  int min_decode_batch = 4;
  // Called by the engine's thread with the tokens of each plan that has any.
  std::function<void(int32_t tokens)> on_step;
  // Drafts ride with decodes (see Chunk); empty: none do.
  DraftProposer propose_drafts;
};

// INVALID_ARGUMENT naming the option, its limit and its value.
Status Validate(const EngineOptions& options);

// INVALID_ARGUMENT unless a pipeline of these limits can run anything.
Status Validate(const PlanLimits& limits);

// Returns the positions of the longest sequence that the KV cache holds alone.
// The blocks that windowed groups need at once count beside those of group 0.
int64_t MaxPositions(const PlanLimits& limits);

// INVALID_ARGUMENT unless a sequence of this many tokens can run, alone in the
// pool, on a pipeline of these limits.
Status CheckFits(int64_t num_prompt_tokens, int64_t max_tokens,
                 const PlanLimits& limits);

// INVALID_ARGUMENT naming the field, its limit and its value.
Status CheckRequest(const GenerateRequest& request, const PlanLimits& limits);

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_ENGINE_OPTIONS_H_
