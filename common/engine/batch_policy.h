#ifndef SLUICE_COMMON_ENGINE_BATCH_POLICY_H_
#define SLUICE_COMMON_ENGINE_BATCH_POLICY_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/engine/admission.h"
#include "common/engine/scheduler_state.h"

namespace sluice {

// Whether a plan with more of the prompts that are being computed, and maybe
// new ones, may go ahead, in addition to max_plans, while nothing decodes or
// waits for a mask to do so: a stage that hands on a chunk has the next one at
// hand then, while hidden states and results are on their way. A new request
// waits for one plan more. Not where the options say how many plans are in
// flight: stages that share a machine would compute side by side.
bool PromptsGoAhead(const SchedulerState& state);

// Decides which sequence comes next, and how much of a plan each kind of work
// gets. Changes nothing in the state but the notes in ClientShare and the turn
// of the fair queue.
//
// Clients that together want more places or blocks than there are get equal
// shares: a client below its share starts first, and a client above it gives
// away. A client alone may have everything.
class BatchPolicy {
 public:
  explicit BatchPolicy(SchedulerState& state) : state_(state) {}

  // The decodes that the next plan may carry, longest waiting first, and how
  // many of them it takes.
  struct Decodes {
    std::vector<Sequence*> ready;
    int32_t room = 0;
    // What the client with the most decodes may have of `room`.
    const ClientShare* most = nullptr;
    int32_t room_of_most = 0;
  };
  // `beside_owed`: the plan carries prompts that are owed.
  Decodes NextDecodes(bool beside_owed) const;

  // Whether a plan may go ahead now, in addition to max_plans: with the decodes
  // whose tokens the oldest sampling plan is about to give. All sequences of
  // that plan that go on must be able to, so that none falls behind.
  bool GoesAhead() const { return !DecodesAhead().empty(); }

  // Prompt tokens that a plan with prompts may carry now: in general, beside
  // decodes, and of owed prompts with `share` of the time.
  int32_t PromptBudget() const;
  int32_t PromptBudgetBesideDecodes() const;
  int32_t OwedBudget(double share) const;
  // Whether prompts wait: because the pace without prompts is being measured,
  // or because prompts would slow the decodes of another plan in flight.
  bool KeepsPromptsOut(bool has_decodes) const;
  // Marks the clients that are owed a part of each plan. Returns the part of
  // the time that is due to those with a short prompt to compute.
  double NoteOwed() const;

  // Whether the sequence has one try left (see EngineOptions::max_replays) and
  // gets plans of its own.
  bool RunsAlone(const Sequence& sequence) const {
    return sequence.losses > 0 && sequence.losses >= state_.options.max_replays;
  }
  // The sequence that runs alone now, running or preempted first; or null.
  Sequence* NextAlone() const;

  // Whether the stages and the other choices of its request let it start.
  bool MayStart(const Sequence& sequence) const;
  // The sequence to start next, or null. `owed`: only owed sequences, of
  // clients below their share.
  Sequence* NextToStart(bool owed) const;

  // The figures behind the promise to a new request.
  QueueState Queue() const;

  // Whether there are several clients, so that shares count.
  bool IsContended() const { return clients().size() > 1; }
  bool HasLess(const ClientShare& client) const;
  // Whether a client below its share has a sequence to start.
  bool ClientWithLessWaits() const;
  // A turn doubles with every run in vain: else two long prompts could take
  // each other's place without end, and neither gets to a token.
  bool HadItsTurn(const Sequence& sequence, TimePoint now) const {
    constexpr Duration kLeast = std::chrono::milliseconds(1);
    constexpr int32_t kMaxDoublings = 16;
    const int32_t doublings = std::min(sequence.runs_in_vain, kMaxDoublings);
    const Duration turn =
        doublings == 0
            ? state_.options.place_turn
            : std::max(state_.options.place_turn, kLeast) * (1 << doublings);
    return now - sequence.last_start >= turn;
  }
  // The newest sequence that has had its turn, of the client above its share
  // with the most places (or blocks); null if there is none. A sequence of
  // `started` does not give way: two could make way for each other without end.
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
