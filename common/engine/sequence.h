#ifndef SLUICE_COMMON_ENGINE_SEQUENCE_H_
#define SLUICE_COMMON_ENGINE_SEQUENCE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/generate_request.h"
#include "common/core/ids.h"
#include "common/core/step_plan.h"
#include "common/engine/block_manager.h"

namespace sluice {

enum class SequenceState {
  kQueued,     // in its client's queue, without blocks
  kRunning,    // known to the stages, with blocks
  kPreempted,  // runs again before any queued sequence, without blocks
};

struct ClientShare;

// A prompt of at most this many tokens is a short one.
inline constexpr int32_t kShortPrompt = 512;

// A live sequence; a finished one has no record. Request and tokens are enough
// to compute the sequence again, on any pipeline, to the same next token:
// sampling is a function of them and the logits. A token is appended before a
// sink sees it, so no sent token is decided again. A value without behaviour:
// SequenceStore and Scheduler keep it consistent.
struct Sequence {
  Sequence(SequenceId own_id, GenerateRequest asked,
           std::shared_ptr<TokenSink> tokens_to)
      : id(own_id),
        tokens(std::exchange(asked.prompt_tokens, {})),
        num_prompt_tokens(static_cast<int32_t>(tokens.size())),
        request(std::move(asked)),
        max_tokens_asked(request.max_tokens),
        sink(std::move(tokens_to)) {
    stats.prompt_tokens = num_prompt_tokens;
  }

  SequenceId id;
  std::vector<TokenId> tokens;  // prompt, then the emitted tokens
  int32_t num_prompt_tokens = 0;
  GenerateRequest request;  // seed resolved; prompt_tokens moved to `tokens`
  // request.max_tokens is less while a rebuilt pipeline holds less: `cut_by`,
  // OK if not, is the end of a sequence that gets there.
  int32_t max_tokens_asked = 0;
  Status cut_by;
  std::shared_ptr<TokenSink> sink;
  SequenceState state = SequenceState::kQueued;

  // Positions [0, num_computed) are in the KV cache; positions up to
  // num_scheduled will be once the plans in flight are committed. At most the
  // last of these is beyond `tokens`: its token is being sampled.
  int32_t num_computed = 0;
  int32_t num_scheduled = 0;
  std::vector<BlockTable> tables;  // one per KV group while running
  int32_t num_reserved = 0;        // positions of its chunks so far, drafts too
  // Chunks before this position are replays: some stages kept the positions.
  int32_t replay_end = 0;
  // Positions that every stage knows to be final. Accepted drafts of the latest
  // chunk count only when the next chunk starts behind them.
  int32_t num_told = 0;

  int32_t plans_in_flight = 0;     // plans that carry a chunk of the sequence
  int32_t sampling_in_flight = 0;  // of them, those that draw a token: up to 2
  StepId last_step;                // the latest of them

  // Pipelines that were lost while a plan in flight carried the sequence, since
  // it last got to `lost_end`: the positions that it had got to by then.
  int32_t losses = 0;
  int32_t lost_end = 0;
  bool is_replay = false;  // the next start computes again what was lost
  bool was_lost = false;   // with its pipeline, and is not computed again yet

  // See Retries: since when its parts of steps fail, and the highest position
  // of them. The results of plans that left before then count for nothing.
  std::optional<TimePoint> fails_since;
  int32_t failed_end = 0;
  int32_t num_void = 0;

  // The constraint's step behind all tokens is there, and goes on.
  bool has_step = false;
  // The latest step came when the others' plan had left.
  bool had_late_step = false;

  // Positions with delivered logits or prompt logprobs; not wanted again.
  int32_t logits_done = 0;

  // Equal for the choices of one request and prompt; 0: no other choices.
  uint64_t group = 0;

  ClientShare* client = nullptr;  // the fair queue's, while the client lives
  bool was_started = false;       // at least once
  uint64_t ticket = 0;            // rises with each start out of the queue
  TimePoint last_start;           // the latest, out of the queue or preempted
  int32_t runs_in_vain = 0;       // ended by a preemption, without a new token
  TimePoint first_schedule;
  TimePoint first_token;
  TimePoint last_token;
  SequenceStats stats;

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_emitted() const { return num_tokens() - num_prompt_tokens; }
  std::span<const TokenId> first(int32_t count) const {
    return std::span(tokens).first(static_cast<size_t>(count));
  }
  // Known positions that no plan computes yet; -1: a plan went ahead of them.
  int32_t remaining() const { return num_tokens() - num_scheduled; }
  // A chunk up to position `end` is computed.
  void OnComputed(int32_t end) {
    num_computed = std::max(num_computed, end);
    was_lost = was_lost && num_computed < replay_end;
  }
  // Whether the next chunk is a replay.
  bool replays() const { return num_scheduled < replay_end; }
  // Whether only the position whose logits give the next token is left, and the
  // token can be drawn.
  bool is_decoding() const {
    return sampling_in_flight > 0 || (remaining() == 1 && !awaits_mask());
  }
  // Whether the next token will be drawn under a constraint.
  bool is_constrained() const {
    return request.constraint != nullptr && request.max_tokens > 0;
  }
  // Whether the next token cannot be drawn yet: its mask is not there.
  bool awaits_mask() const { return is_constrained() && !has_step; }
  // Whether positions that are not sampled want logits too.
  bool wants_all_logits() const {
    return request.sampling.return_logits ||
           request.sampling.prompt_logprobs >= 0 ||
           request.sampling.hidden == HiddenWanted::kAll;
  }
  // Returns what the stages need to know when the sequence starts, from
  // `tokens`, `tables` and the request.
  StartedSequence Started() const {
    StartedSequence started;
    started.sequence = id;
    started.sampling = request.sampling;
    started.num_prompt_tokens = num_prompt_tokens;
    started.tokens = tokens;
    if (replays()) started.replay_from = num_scheduled;
    for (const BlockTable& table : tables) {
      started.blocks.emplace_back(table.held().begin(), table.held().end());
    }
    return started;
  }
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_SEQUENCE_H_
