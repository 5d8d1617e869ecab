#ifndef SLUICE_COMMON_STAGE_RANK_LINK_H_
#define SLUICE_COMMON_STAGE_RANK_LINK_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/device/step_inputs.h"
#include "common/model_config/weights_mode.h"
#include "common/tensor/hidden_states.h"
#include "kernels/weight_type.h"

namespace sluice {

// What all processes of a stage load alike: those of StageOptions that are not
// of one process, and the model's digest.
struct RankOrder {
  std::string model_digest;  // hex
  int32_t first_layer = 0;
  int32_t last_layer = 0;  // one past the last
  int32_t all_ranks = 0;
  WeightsMode weights = WeightsMode::kAuto;
  kernels::WeightType kv_type = kernels::WeightType::kF32;
  std::string numerics;  // of StageOptions: auto, fast or canonical
  uint64_t memory = 0;
  int32_t kv_blocks = 0;
  int32_t max_context = 0;
  int32_t max_step_tokens = 0;
  int32_t max_sequences = 0;
  bool operator==(const RankOrder&) const = default;
};

// What a process says of its ranks, and what is so of all of them.
struct RankFacts {
  std::string numerics;        // the same everywhere: StageIdentity's
  int32_t max_context = 0;     // the least
  int32_t kv_blocks = 0;       // the least
  uint64_t weights_bytes = 0;  // the sum
  uint64_t kv_bytes = 0;       // the sum
  int32_t state_blocks = 0;    // the least
  bool operator==(const RankFacts&) const = default;
};

// A step as the ranks of other processes get it. `hidden` is of a stage that is
// not the first: [T, H], the rows that come in.
struct RankStep {
  explicit RankStep(const StepLimits& limits) : inputs(limits) {}
  StepInputs inputs;
  HiddenStates hidden;
};

// The processes that have the ranks of one stage together. The lead has rank 0:
// it is the stage for gateways and other stages. Followers have the other ranks
// and run the lead's steps. Ranks meet on their devices alone once they are
// loaded. Every process calls Connect once for each load, then Agree, as often
// as the others. A process that loses another one while ranks are loaded ends
// itself (EndToBeReplaced): its devices cannot go on alone.
class RankLink {
 public:
  virtual ~RankLink() = default;

  // Returns the id by which the ranks' devices connect. The lead waits until
  // followers have all other ranks, and gives them `order`, and `own` as the
  // id; a follower passes no id and gets the lead's. UNAVAILABLE if the process
  // is told to end meanwhile; INVALID_ARGUMENT if a follower's order is not the
  // lead's; FAILED_PRECONDITION on the lead with the reason of a follower that
  // gave up, ABORTED on a follower whose load the lead dropped. All processes
  // have called it when it returns.
  virtual StatusOr<std::string> Connect(const RankOrder& order,
                                        std::string own) = 0;
  // Returns what is so of all ranks, when every process has said `own`.
  // FAILED_PRECONDITION for numerics that differ, and for ranks that another
  // process could not load, with the reason.
  virtual StatusOr<RankFacts> Agree(const RankFacts& own) = 0;
  // This process could not load its ranks, whatever the reason: the others end
  // their load, too. Called before this process's devices go, which may wait
  // for the others'. On the lead as Drop.
  virtual void GiveUp(const Status& why) = 0;
  // A follower, behind GiveUp: returns when the lead has dropped the load, or
  // is lost.
  virtual void AwaitDrop() {}
  // The lead: hands a step to all followers, in order; does not wait for them.
  // `hidden`: as RankStep's, empty on a first stage.
  virtual void Begin(const StepInputs& step, const HiddenStates& hidden) = 0;
  // The lead: followers drop their ranks when they have run all steps, or end
  // to load them. Another Connect may follow. Idempotent.
  virtual void Drop() = 0;
};

// What bounds a follower's steps.
struct RankStepBounds {
  StepLimits limits;
  int32_t kv_blocks = 0;
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;  // of rows that come in; 0: the stage is the first
  int32_t state_group = 0;  // the KV group of states; 0: there is none
  int32_t state_blocks = 0;
};

// Runs the lead's steps in a follower: RankFollower, or a test's stand-in. One
// thread calls it.
class RankStepRunner {
 public:
  virtual ~RankStepRunner() = default;
  virtual const RankStepBounds& bounds() const = 0;
  // Returns the place of the next step, to be filled before Push; null: as many
  // steps are under way as there can be.
  virtual RankStep* Free() = 0;
  // The step of Free may run. Does not wait for it.
  virtual void Push() = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_RANK_LINK_H_
