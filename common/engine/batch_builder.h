#ifndef SLUICE_COMMON_ENGINE_BATCH_BUILDER_H_
#define SLUICE_COMMON_ENGINE_BATCH_BUILDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/engine/batch_policy.h"
#include "common/engine/scheduler_state.h"

namespace sluice {

// Builds one plan: BatchPolicy says which sequences come next and how much of
// the plan they get, and SequenceStore moves them. One object per plan.
//
// A plan takes decodes first, then prompt chunks and new sequences; drafts get
// the rest. When blocks run out, the running sequence that started last is
// preempted, and runs again before any other starts, so the running sequences
// are always those that started first. A client above its share gives a place
// or blocks to a client below it: its sequence is queued again.
class BatchBuilder {
 public:
  // `policy` decides from `state`; both must outlive the builder.
  BatchBuilder(SchedulerState& state, const BatchPolicy& policy, TimePoint now)
      : state_(state),
        sequences_(state.sequences),
        policy_(policy),
        now_(now),
        budget_(state.max_step_tokens()) {}

  // Fills the plan, but for replica, epoch, step, ended and trace.
  void Build();

  // The chunks and started sequences. Valid once.
  StepPlan TakePlan() { return std::move(plan_); }
  // How many of the chunks are decodes.
  int32_t num_decodes() const { return static_cast<int32_t>(decodes_.size()); }

 private:
  // The prompts of one pass: those that are owed a part of the plan (see
  // BatchPolicy), the others, or all.
  enum class Prompts { kAll, kOwed, kOthers };

  bool BuildAlone(Sequence& sequence);
  void AddDecodes();
  void AddPromptsBesideDecodes();
  void AddPrompts(Prompts kind);
  void Admit(Prompts kind, int32_t keep);
  bool MakeWay();
  bool AwaitsReplay(const Sequence& s) const;
  bool Match(Sequence& sequence, bool may_replay);
  bool Start(Sequence& sequence, int32_t budget);
  void CountFirstStart(Sequence& sequence, int32_t skipped);
  std::optional<std::string> SaltOf(const Sequence& sequence) const;
  int32_t NextChunkSize(const Sequence& sequence, int32_t budget) const;
  void AddDrafts();
  void AddDrafts(Chunk& chunk, int32_t room);
  std::vector<TokenId> ProposedFor(const Sequence& sequence,
                                   int32_t limit) const;
  bool MayDraw(const Sequence& sequence) const;
  static void AddMasks(const Sequence& sequence, Chunk& chunk);
  bool AddChunk(Sequence& sequence, int32_t count);
  bool Reserve(Sequence& sequence, int32_t num_tokens);
  void TakeOut(Sequence& victim, bool requeue);

  SchedulerState& state_;
  SequenceStore& sequences_;
  const BatchPolicy& policy_;
  const TimePoint now_;
  StepPlan plan_;
  std::vector<SequenceId> decodes_;  // whose chunks are in `plan_`
  int32_t budget_ = 0;               // tokens that still fit
  bool preempted_ = false;           // some sequence, for want of blocks
  double owed_share_ = 0;            // see BatchPolicy::NoteOwed
  size_t num_runs_ = 0;              // of the masks in `plan_`
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_BATCH_BUILDER_H_
