#ifndef SLUICE_COMMON_STAGE_BOUNDARY_LOG_H_
#define SLUICE_COMMON_STAGE_BOUNDARY_LOG_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/core/step_plan.h"
#include "common/stage/stage.h"
#include "common/stage/stage_info.h"
#include "common/tensor/buffer.h"
#include "common/tensor/hidden_states.h"

namespace sluice {

// The hidden states that a stage has handed on, by the slots of KV group 0: a
// row is there as long as its position's keys and values are. A successor that
// lost its KV cache gets them from here, and this stage computes nothing again.
// Used by the stage loop's thread.
class BoundaryLog {
 public:
  // Bytes of a log for `info`'s blocks, F32. Memory is used as slots are.
  static uint64_t BytesOf(const StageInfo& info);
  // Without a log (StageIdentity::replay_log) nothing is kept.
  explicit BoundaryLog(const StageInfo& info);

  // FAILED_PRECONDITION if the plan makes this stage hand on a replay that the
  // stage neither computes nor has a log of.
  Status Check(const StepPlan& plan) const;

  // Returns the slots of the chunks' rows, in their order; none without a log.
  // A step's are asked for when the step begins: the next plan may begin before
  // HandOn, end a sequence, and give its blocks to another one.
  std::vector<size_t> SlotsOf(
      const std::vector<Stage::ChunkInput>& chunks) const;

  // Returns the rows that the next stage takes, in the order of the plan's
  // chunks, whose slots are `slots`. `computed`: the rows that this stage has
  // computed, in the same order; the log keeps them. Needs Check, and the plans
  // in their order: then a replay gets what the steps before have left in its
  // slots, even if the stage began it before they were done.
  HiddenStates HandOn(const StepPlan& plan, const std::vector<size_t>& slots,
                      HiddenStates computed);

 private:
  float* At(size_t slot) { return rows_.as<float>() + slot * hidden_size_; }

  const int32_t first_layer_;
  const int32_t next_layer_;
  const size_t hidden_size_;
  Buffer rows_;  // [num_blocks * kBlockTokens, hidden_size], or nothing
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_BOUNDARY_LOG_H_
