#ifndef SLUICE_COMMON_STAGE_STAGE_LOOP_H_
#define SLUICE_COMMON_STAGE_STAGE_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/core/step_plan.h"
#include "common/stage/kv_store.h"
#include "common/stage/stage.h"
#include "common/tensor/hidden_states.h"

namespace sluice {

// A plan on its way through the pipeline: with the hidden states of stage i-1
// into stage i, with those of stage i out of it.
struct StepInput {
  StepPlan plan;
  // [plan.num_rows(the stage's first layer), H]; empty at the first stage.
  HiddenStates hidden;
  // Sequences of the step that failed on an earlier stage, with a status alone.
  std::vector<SequenceResult> failed = {};
  // The parser checked the plan against limits within the stage's.
  bool validated = false;
};

// A step's times on this stage, in nanoseconds.
struct StepTiming {
  int64_t wait_ns = 0;     // in the queue
  int64_t compute_ns = 0;  // layers, and sampling on the last stage
};

struct StepOutput {
  StepPlan plan;
  HiddenStates hidden;               // empty at the last stage
  std::optional<StepResult> result;  // at the last stage
  // Of this stage and earlier ones; empty at the last stage.
  std::vector<SequenceResult> failed = {};
  StepTiming timing;
  std::vector<CollectiveTimes> ranks;  // per rank; empty with one
};

// Gets finished steps, in step order, from the loop's thread. May not block:
// queue and return.
class StepOutputSink {
 public:
  virtual ~StepOutputSink() = default;
  virtual void OnStep(StepOutput output) = 0;
  // A plan contradicts this stage's sequences (an unknown sequence, a block
  // table that is too short, a step out of order). The stage has dropped the
  // epoch's state and takes no step until Reset; the peer must raise the epoch.
  virtual void OnStepError(Epoch epoch, StepId step, Status why) = 0;
};

struct StageLoopStats {
  uint64_t steps = 0;
  uint64_t tokens = 0;
  uint64_t steps_ahead = 0;    // begun before the step before was finished
  uint64_t prefill_steps = 0;  // with a chunk of more than one token
  double compute_seconds = 0;
  double wait_seconds = 0;     // idle between steps
  int32_t sequences = 0;       // begun and not ended, by the last step's plan
  int32_t kv_blocks_used = 0;  // distinct ones of these sequences
  int32_t kv_blocks_peak = 0;  // the most at once since the epoch began
  int32_t queue_depth = 0;
  Epoch epoch;
  // Rises with every layer, and a few times a second while the loop waits for
  // a step.
  uint64_t progress = 0;
};

// Computes steps: a StageLoop, or a test's stand-in. Finished steps go to a
// StepOutputSink. Any thread, never blocks.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // As StageLoop's.
  virtual Status Push(StepInput input) = 0;
  // Called with the caller's locks held: must not call the sink.
  virtual void Reset(Epoch epoch) = 0;
  virtual void OnSampled(const StepResult& result) = 0;  // likewise
  // Has `work` done between steps, in the order of the calls, and before later
  // steps. It gets what the stage holds; null: keys and values of this stage
  // cannot be copied, or the runner ends. Returns false if it never comes.
  // Called with the caller's locks held, as Reset.
  using KvWork = std::function<void(KvStore* store)>;
  virtual bool Between([[maybe_unused]] KvWork work) { return false; }
  virtual StageLoopStats Stats() const = 0;
};

// Runs one stage: one thread owns the model, the KV cache and the sequence
// table. Steps run in step_id order within an epoch; steps of other epochs are
// dropped. The stage and the sink must outlive the loop.
class StageLoop : public StepRunner {
 public:
  // `max_queued_steps` bounds Push.
  StageLoop(Stage* stage, StepOutputSink* sink, int max_queued_steps);
  ~StageLoop() override;  // stops

  void Start();
  // Finishes the present step and drops the rest.
  void Stop();

  // Queues a step. Any thread, never blocks. INVALID_ARGUMENT if the plan
  // breaks the stage's limits or the hidden states' shape is not [rows, H];
  // RESOURCE_EXHAUSTED if the queue is full. A step waits for the step before
  // it, and on the first stage for tokens that earlier steps sample for its
  // chunks.
  Status Push(StepInput input) override;

  // Forgets every sequence and queued step and begins `epoch`, whose first step
  // id is 0. Keys, values and the log stay as they are; no step of an earlier
  // epoch runs beside a later one's. Any thread. Takes effect before any later
  // Push.
  void Reset(Epoch epoch) override;

  // Tells the first of several stages what the last one sampled in a step. Any
  // thread. Drops a result of another epoch.
  void OnSampled(const StepResult& result) override;

  bool Between(KvWork work) override;

  StageLoopStats Stats() const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_STAGE_LOOP_H_
