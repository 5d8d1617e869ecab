#ifndef SLUICE_COMMON_ENGINE_SEQUENCE_H_
#define SLUICE_COMMON_ENGINE_SEQUENCE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/core/generate_request.h"
#include "common/core/ids.h"
#include "common/engine/block_manager.h"
#include "common/engine/journal.h"

namespace sluice {

enum class SequenceState {
  kWaiting,  // holds no blocks; new or preempted
  kRunning,  // known to the stages, holds blocks
};

struct ClientShare;

// Tokens up to which a prompt counts as a short one.
inline constexpr int32_t kShortPrompt = 512;

// The scheduler's record of a live sequence; a finished one has none. A value
// without behaviour of its own: the scheduler keeps it consistent.
struct Sequence {
  SequenceId id;
  const JournalEntry* history = nullptr;  // the tokens; the journal's
  SequenceState state = SequenceState::kWaiting;

  // Positions [0, num_computed) are in the KV cache for sure, those up to
  // num_scheduled will be once the plans in flight are committed.
  int32_t num_computed = 0;
  int32_t num_scheduled = 0;
  std::vector<BlockTable> tables;  // one per KV group while running

  int32_t plans_in_flight = 0;      // plans that carry a chunk of it
  bool sampling_in_flight = false;  // one of them draws a token
  StepId last_step;                 // the latest of them

  // Of positions [0, logits_done) the wanted logits or prompt logprobs were
  // delivered; a recompute does not ask for them again.
  int32_t logits_done = 0;

  // Choices of one request and prompt have one number; 0: it has no others.
  uint64_t group = 0;

  ClientShare* client = nullptr;  // the waiting line's, while it lives
  bool in_line = false;           // waits for its turn there
  bool was_started = false;       // at least once
  uint64_t ticket = 0;            // rises with each start out of the line
  TimePoint last_start;           // the latest, out of the line or returning
  TimePoint first_schedule;
  TimePoint first_token;
  TimePoint last_token;
  SequenceStats stats;

  int32_t num_tokens() const { return history->num_tokens(); }
  // Positions that no plan computes yet.
  int32_t remaining() const { return num_tokens() - num_scheduled; }
  // Whether more than the sampled positions' logits are asked for.
  bool wants_all_logits() const {
    const SamplingParams& sampling = history->request.sampling;
    return sampling.return_logits || sampling.prompt_logprobs >= 0;
  }
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_SEQUENCE_H_
