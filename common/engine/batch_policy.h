#ifndef SLUICE_COMMON_ENGINE_BATCH_POLICY_H_
#define SLUICE_COMMON_ENGINE_BATCH_POLICY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/engine/admission.h"
#include "common/engine/scheduler_state.h"

namespace sluice {

// Decides which sequence comes next, and how much of a plan each kind of work
// gets: turns, shares per client, pace. Reads the state, and changes nothing
// in it but the notes in ClientShare and the turn of the fair queue.
//
// Clients that want more places or blocks than there are get equal shares: a
// client that has less than its share starts first, and one that has more
// gives away. A client alone may have everything.
class BatchPolicy {
 public:
  explicit BatchPolicy(SchedulerState& state) : state_(state) {}

  // The decodes that the next plan may carry, those that have waited longest
  // first, and how many of them it takes.
  struct Decodes {
    std::vector<Sequence*> ready;
    int32_t room = 0;
    // Of `room`, what the client with the most decodes may have.
    const ClientShare* most = nullptr;
    int32_t room_of_most = 0;
  };
  // `beside_owed`: prompts that are owed ride in the plan.
  Decodes NextDecodes(bool beside_owed) const;

  // Whether a plan may go ahead now, beside max_plans: with the decodes whose
  // tokens the oldest plan that samples is about to give. All of its sequences
  // that go on must be able to, so that none falls behind the others.
  bool GoesAhead() const { return !DecodesAhead().empty(); }

  // Prompt tokens that a plan may carry now, plans without any aside: in
  // general, beside decodes, and of prompts that are owed `share` of the time.
  int32_t PromptBudget() const;
  int32_t PromptBudgetBesideDecodes() const;
  int32_t OwedBudget(double share) const;
  // Whether prompts have to wait because the pace is measured without them, or
  // because decodes are under way in another plan that prompts would slow.
  bool KeepsPromptsOut(bool has_decodes) const;
  // Notes which clients are owed a part of each plan. Returns the part of the
  // time that is due to those that have a short prompt to compute.
  double NoteOwed() const;

  // Whether the stages and the choices of the same request let it start.
  bool MayStart(const Sequence& sequence) const;
  // The sequence to start next, or null; `owed`: of those that are owed, while
  // their client has less than its share.
  Sequence* NextToStart(bool owed) const;

  // What waits, and how fast it is served: what a new request is promised.
  QueueState Queue() const;

  // Whether there are several clients, so that shares count.
  bool IsContended() const { return clients().size() > 1; }
  bool HasLess(const ClientShare& client) const;
  // Whether a client that has less than its share has a sequence to start.
  bool ClientWithLessWaits() const;
  bool HadItsTurn(const Sequence& sequence, TimePoint now) const {
    return now - sequence.last_start >= state_.options.place_turn;
  }
  // The newest sequence that has had its turn, of the client with the most
  // places (or blocks) of those above their share; null if there is none.
  // Sequences of `started` do not give way: two could make way for each other
  // without end.
  Sequence* GivesWay(const std::vector<StartedSequence>& started,
                     TimePoint now) const;
  // The running sequence that loses its blocks when there are too few.
  Sequence* LosesBlocks() const;

 private:
  const std::vector<std::unique_ptr<ClientShare>>& clients() const {
    return state_.sequences.queue().clients();
  }
  int32_t PlacesEach() const {
    return PlaceShare(state_.options, state_.max_running(), clients().size());
  }
  int32_t BlocksEach() const {
    return state_.sequences.blocks().num_blocks() /
           static_cast<int32_t>(clients().size());
  }
  std::vector<Sequence*> DecodesAhead() const;
  int32_t BlocksOf(const ClientShare& client) const;
  bool HasMore(const ClientShare& client) const;
  const ClientShare* LargestClient() const;
  int32_t NumShortPrompts() const;
  void LimitLargest(int groups, bool beside_owed, Decodes& decodes) const;

  SchedulerState& state_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_BATCH_POLICY_H_
