#ifndef SLUICE_COMMON_ENGINE_PLAN_IN_FLIGHT_H_
#define SLUICE_COMMON_ENGINE_PLAN_IN_FLIGHT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/step_plan.h"
#include "common/engine/sequence.h"

namespace sluice {

// A plan's chunk of one sequence, without its known tokens.
struct PlannedChunk {
  SequenceId sequence;
  int32_t start = 0;
  int32_t count = 0;            // known tokens
  std::vector<TokenId> drafts;  // behind them
  LogitsWanted logits = LogitsWanted::kNone;
  bool samples = false;
  bool replay = false;  // for stages that were replaced alone

  int32_t end() const { return start + count; }
};

// A submitted plan without a result.
struct PlanInFlight {
  StepId step_id;
  std::vector<PlannedChunk> chunks;
  int32_t num_decodes = 0;          // of the chunks; one known token each
  int32_t prompt_tokens = 0;        // of the others
  bool concurrent_prefill = false;  // see StepPace
  bool is_probe = false;            // see Scheduler::Probe
  // The plan that samples tokens of this one (see Chunk::sampled_by), or, of
  // one that went ahead with prompts, the oldest in flight.
  std::optional<StepId> follows;
  TimePoint submitted;  // or, if later, the time of the result that it follows
};

// INTERNAL unless `result` can be the answer to `plan`: it has the step's
// number, and sequences of the plan, each at most once.
Status CheckAnswers(const PlanInFlight& plan, const StepResult& result);

// INTERNAL unless `result`, whose status is OK, holds what `chunk` wants:
// counts, token ids within the vocabulary, sizes.
Status CheckAnswers(const PlannedChunk& chunk, const Sequence& sequence,
                    const SequenceResult& result, int32_t vocab_size);

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_PLAN_IN_FLIGHT_H_
