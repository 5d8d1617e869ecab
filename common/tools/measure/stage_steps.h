#ifndef SLUICE_COMMON_TOOLS_MEASURE_STAGE_STEPS_H_
#define SLUICE_COMMON_TOOLS_MEASURE_STAGE_STEPS_H_

#include <cstdint>
#include <vector>

#include "common/core/sampling_params.h"
#include "common/core/step_plan.h"
#include "common/stage/stage.h"

namespace sluice::measure {

// Returns parameters that take the likeliest token.
SamplingParams Greedy();

// Sequences of made-up tokens on one stage that holds a whole model, in step
// with each other; each step wants the logits of every sequence's last token
// and samples from them. The stage outlives it.
class StageSteps {
 public:
  // `count` sequences of at most `length` tokens each. Their KV blocks are the
  // stage's from `first_block` on, and nothing else uses those.
  StageSteps(Stage* stage, int count, int length,
             const SamplingParams& sampling = Greedy(), int first_block = 0);

  // Returns the seconds of one step of `tokens` more tokens of every sequence.
  double Step(int tokens);

  // Returns the seconds of each of `count` steps of one token more of every
  // sequence, from result to result. All but the first continue the token that
  // the step before draws, and begin before it is done. The stage overlaps
  // steps; no penalties.
  std::vector<double> StepsAhead(int count);

  // Forgets every sequence's tokens from position `length` on: the next step
  // computes there again. Not for sampling with penalties.
  void Rewind(int length);

 private:
  std::vector<Stage::ChunkInput> Prepare(int tokens, bool takes_drawn);

  Stage& stage_;
  std::vector<Stage::SequenceState> states_;
  // Of the present step and of the one before, which may be in flight.
  std::vector<Chunk> chunks_;
  std::vector<Chunk> older_chunks_;
};

}  // namespace sluice::measure

#endif  // SLUICE_COMMON_TOOLS_MEASURE_STAGE_STEPS_H_
