#ifndef SLUICE_COMMON_CORE_STEP_PLAN_H_
#define SLUICE_COMMON_CORE_STEP_PLAN_H_

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/core/generate_request.h"
#include "common/core/ids.h"
#include "common/core/sampling_params.h"
#include "common/core/step_trace.h"
#include "common/core/token_mask.h"

namespace sluice {

// Which positions of a chunk need logits.
enum class LogitsWanted : uint8_t {
  kNone,  // prefill that goes on
  kLast,  // the last known token and the drafts behind it
  kAll,   // every position: prompt logprobs; samples from the last one only
          // if `samples` is set
};

// Draft tokens of one chunk.
inline constexpr int32_t kMaxDraftTokens = 16;

// A chunk's token is sampled at most so many steps before the chunk's own.
inline constexpr uint64_t kMaxStepsBack = 64;

// Consecutive tokens of one sequence in one step: known ones, and behind them
// drafts, guesses at the tokens that follow. The last stage samples behind the
// last known token, and behind a draft if it equals the token sampled at its
// place and so do all drafts before it: that draft is accepted. So drafts
// change no token. The next chunk of the sequence starts behind the accepted
// drafts, and writes over the KV positions of the others.
//
// The token of a chunk may also be one that an earlier step samples: the plan
// may leave before the result of that step is back. The first stage and the
// last one look the token up, the others do not need it.
struct Chunk {
  SequenceId sequence;
  int32_t start = 0;            // position of tokens[0]
  std::vector<TokenId> tokens;  // at least one is no draft
  // The step that samples tokens[0], which is a placeholder then and alone.
  std::optional<StepId> sampled_by = std::nullopt;
  int32_t num_draft_tokens = 0;  // of them, at the end; needs kLast, `samples`
  LogitsWanted logits = LogitsWanted::kNone;
  bool samples = false;  // 1 to num_draft_tokens + 1 tokens are drawn
  // Which tokens may be drawn: empty, or a mask for each that may be drawn.
  std::vector<TokenMask> masks;
  // Blocks appended to the sequence's tables by this step, per KV group.
  std::vector<std::vector<BlockId>> new_blocks;
  bool operator==(const Chunk&) const = default;
};

// A sequence's first appearance, also after a preemption. The last stage
// keeps the token history, which sampling needs also where prefix hits skip
// the compute.
struct StartedSequence {
  SequenceId sequence;
  SamplingParams sampling;
  int32_t num_prompt_tokens = 0;  // of `tokens`; the rest was sampled
  std::vector<TokenId> tokens;    // prompt, then what was sampled so far
  // Tables as they stand: blocks of prefix hits, per KV group. All groups
  // cover as much as group 0; a windowed one has only the last blocks of it,
  // those that the next query still reads.
  std::vector<std::vector<BlockId>> blocks;
  bool operator==(const StartedSequence&) const = default;
};

// One forward pass over the whole pipeline. Pure data: it can be printed,
// replayed and compared. Effects happen in the order ended, started, chunks.
struct StepPlan {
  ReplicaId replica;
  Epoch epoch;
  StepId step_id;
  std::vector<SequenceId> ended;  // forget these
  std::vector<StartedSequence> started;
  std::vector<Chunk> chunks;  // at most one per sequence
  // Present if a sequence of the step is traced; changes no token.
  std::optional<StepTrace> trace;

  int32_t num_tokens() const;  // drafts included
  bool operator==(const StepPlan&) const = default;
};

std::ostream& operator<<(std::ostream& out, const StepPlan& plan);

// What a plan must fit into; negotiated at the handshake.
struct PlanLimits {
  int32_t max_step_tokens = 0;  // tokens of all chunks of one plan
  int32_t max_sequences = 0;    // sequences alive at once
  int32_t max_context = 0;      // positions of one sequence
  // Of the KV cache, ids [0, num_blocks). All groups take from them: a block
  // holds positions for the layers of the group that has it.
  int32_t num_blocks = 0;
  int32_t num_kv_groups = 1;
  int32_t vocab_size = 0;
  // Per KV group the window of its layers (see kv_groups.h); what is not
  // there has none, group 0 never.
  std::vector<int32_t> kv_windows = {};
  int32_t kv_window(int32_t group) const {
    const auto index = static_cast<size_t>(group);
    return index < kv_windows.size() ? kv_windows[index] : 0;
  }
  bool operator==(const PlanLimits&) const = default;
};

// Checks every field that can be checked without state: ranges, sizes,
// duplicate sequences. INVALID_ARGUMENT names what, which, limit and value.
Status Validate(const StepPlan& plan, const PlanLimits& limits);

// One sequence's outcome of a step.
struct SequenceResult {
  SequenceId sequence;
  Status status;  // not OK: this sequence failed, the step did not
  // The accepted drafts, in order, and the token behind them.
  std::vector<TokenResult> sampled;
  std::vector<TokenResult> prompt;  // entry i: prompt token start+i+1
  // Rows [.., V] if asked for: with kLast one for each of `sampled`.
  std::vector<float> logits;
};

// What the last stage answers to a plan.
struct StepResult {
  ReplicaId replica;
  Epoch epoch;
  StepId step_id;
  std::vector<SequenceResult> sequences;  // those with logits wanted, or failed
  std::optional<StepTrace> trace;         // the plan's, if it had one
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_STEP_PLAN_H_
