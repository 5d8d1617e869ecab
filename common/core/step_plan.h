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

// An earlier step that samples a chunk's token is at most this many before it.
inline constexpr uint64_t kMaxStepsBack = 64;

// Stages that compute the replays of one plan.
inline constexpr int kMaxReplayStages = 1024;

// Consecutive tokens of one sequence in one step: known tokens, then drafts,
// which are guesses at the tokens that follow. The last stage samples behind
// the last known token. A draft is accepted if it and all drafts before it
// equal the tokens sampled at their places; then the last stage samples behind
// it as well. So drafts change no token. The sequence's next chunk starts
// behind the accepted drafts, and writes over the KV positions of the others.
//
// A plan may leave before the token of a chunk is known: an earlier step
// samples it. The first and the last stage look the token up; others do not
// need it.
struct Chunk {
  SequenceId sequence;
  int32_t start = 0;            // position of tokens[0]
  std::vector<TokenId> tokens;  // at least one is no draft
  // The step that samples tokens[0], which is a placeholder then and alone.
  std::optional<StepId> sampled_by = std::nullopt;
  int32_t num_draft_tokens = 0;  // of them, at the end; needs kLast, `samples`
  // The chunk lies within kept positions (StartedSequence::replay_from): only
  // the stages of StepPlan::replay_at compute it. Known tokens, no logits.
  bool replay = false;
  LogitsWanted logits = LogitsWanted::kNone;
  bool samples = false;  // 1 to num_draft_tokens + 1 tokens are drawn
  // The tokens that may be drawn: empty, or one mask per drawn token.
  std::vector<TokenMask> masks;
  // Blocks appended to the sequence's tables by this step, per KV group.
  std::vector<std::vector<BlockId>> new_blocks;
  bool operator==(const Chunk&) const = default;
};

// A sequence's first appearance, also after a preemption. The last stage keeps
// the token history for sampling, also for prefix hits.
struct StartedSequence {
  SequenceId sequence;
  SamplingParams sampling;
  int32_t num_prompt_tokens = 0;  // of `tokens`; the rest was sampled
  std::vector<TokenId> tokens;    // prompt, then the tokens sampled so far
  // The tables so far: blocks of prefix hits, per KV group. All groups cover as
  // much as group 0; a windowed group has only the last of these blocks, which
  // the next query still reads.
  std::vector<std::vector<BlockId>> blocks;
  // Present: the stages of StepPlan::replay_at lack the hits from this position
  // on, and chunks with `replay` bring the tokens. The first chunk starts here.
  // A windowed group may have blocks then that hold no hits. In them only these
  // stages write and read.
  std::optional<int32_t> replay_from = std::nullopt;
  bool operator==(const StartedSequence&) const = default;

  // Returns the end of the hits that no chunk computes on every stage: of the
  // blocks, but without the history's last token.
  int32_t kept_end() const;
};

// KV blocks [begin, end).
struct BlockRange {
  int32_t begin = 0;
  int32_t end = 0;
  bool operator==(const BlockRange&) const = default;
};

// The most ranges of one plan.
inline constexpr int kMaxVacantRanges = 1024;

// One forward pass over the whole pipeline. Pure data: it can be printed,
// replayed and compared. Effects happen in the order ended, started, chunks.
struct StepPlan {
  ReplicaId replica;
  Epoch epoch;
  StepId step_id;
  std::vector<SequenceId> ended;  // forget these
  std::vector<StartedSequence> started;
  std::vector<Chunk> chunks;  // at most one per sequence
  // The first layers, rising, of the stages that compute chunks with `replay`:
  // they lost their KV cache, the others kept theirs. Empty without such
  // chunks.
  std::vector<int32_t> replay_at = {};
  // Blocks that hold nothing, rising and apart: a stage may give their memory
  // back, and no step reads them before it writes them. Of a plan without
  // chunks that is alone in the pipeline.
  std::vector<BlockRange> vacant = {};
  // Present if a sequence of the step is traced; changes no token.
  std::optional<StepTrace> trace;

  int32_t num_tokens() const;  // drafts included
  // Whether the stage with that first layer computes `chunk`.
  bool Computes(const Chunk& chunk, int32_t first_layer) const;
  // Tokens of the chunks that the stage with that first layer computes.
  int32_t num_rows(int32_t first_layer) const;
  bool operator==(const StepPlan&) const = default;
};

std::ostream& operator<<(std::ostream& out, const StepPlan& plan);

// The first layers of the stages of a new pipeline that lost their KV cache
// since the last one, while all others kept theirs. Nothing: all lost it.
using LostStages = std::optional<std::vector<int32_t>>;

// The bounds of a plan, from the handshake.
struct PlanLimits {
  int32_t max_step_tokens = 0;  // tokens of all chunks of one plan
  int32_t max_sequences = 0;    // sequences alive at once
  int32_t max_context = 0;      // positions of one sequence
  // Blocks of the KV cache, ids [0, num_blocks). All groups but that of states
  // take from them: a block holds positions for the layers of its present
  // group.
  int32_t num_blocks = 0;
  int32_t num_kv_groups = 1;
  int32_t vocab_size = 0;
  // The window of each KV group, or kStateWindow (see kv_groups.h). Group 0,
  // and groups beyond the list, have none.
  std::vector<int32_t> kv_windows = {};
  int32_t kv_window(int32_t group) const {
    const auto index = static_cast<size_t>(group);
    return index < kv_windows.size() ? kv_windows[index] : 0;
  }
  // Blocks of states, ids [0, num_state_blocks); 0 without a group of states.
  int32_t num_state_blocks = 0;
  // The blocks that a group's tables name.
  int32_t blocks_of(int32_t group) const;
  bool operator==(const PlanLimits&) const = default;
};

// Checks every field that needs no state: ranges, sizes, duplicate sequences.
// INVALID_ARGUMENT names what, which, limit and value.
Status Validate(const StepPlan& plan, const PlanLimits& limits);

// One sequence's result of a step.
struct SequenceResult {
  SequenceId sequence;
  Status status;  // not OK: this sequence failed, the step did not
  // The accepted drafts, in order, and the token behind them.
  std::vector<TokenResult> sampled;
  std::vector<TokenResult> prompt;  // entry i: prompt token start+i+1
  // Rows [.., V] if wanted: with kLast one for each of `sampled`. Or rows
  // [.., H] of hidden states: with kLast one.
  std::vector<float> logits;
};

// The last stage's answer to a plan.
struct StepResult {
  ReplicaId replica;
  Epoch epoch;
  StepId step_id;
  std::vector<SequenceResult> sequences;  // those with logits wanted, or failed
  std::optional<StepTrace> trace;         // the plan's, if it had one
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_STEP_PLAN_H_
