// Who holds places and blocks while they are short: which sequence starts
// next, and which one gives its own away.
#include <algorithm>
#include <utility>

#include "common/engine/scheduler.h"
#include "common/engine/scheduler_draft.h"

namespace sluice {
namespace {

int32_t NumHeld(const Sequence& sequence) {
  int32_t held = 0;
  for (const BlockTable& table : sequence.tables) held += table.num_held();
  return held;
}

}  // namespace

bool Scheduler::IsContended() const { return line_.clients().size() > 1; }

int32_t Scheduler::PlacesEach() const {
  return PlaceShare(options_, max_running(), line_.clients().size());
}

int32_t Scheduler::BlocksEach() const {
  return blocks_.num_blocks() / static_cast<int32_t>(line_.clients().size());
}

// A prefix that several sequences share counts for each of them.
int32_t Scheduler::BlocksOf(const ClientShare& client) const {
  int32_t held = 0;
  for (const Sequence* sequence : running_) {
    if (sequence->client == &client) held += NumHeld(*sequence);
  }
  return held;
}

bool Scheduler::HasLess(const ClientShare& client) const {
  return client.running < PlacesEach() &&
         (client.running == 0 || BlocksOf(client) < BlocksEach());
}

bool Scheduler::HasMore(const ClientShare& client) const {
  return client.running > PlacesEach() ||
         (client.running > 1 && BlocksOf(client) > BlocksEach());
}

// Those of clients with less than their share go first, also before one that
// waits for blocks.
Sequence* Scheduler::NextInLine() {
  const auto may_start = [this](const Sequence& s) { return MayStart(s); };
  if (!IsContended()) return line_.Next(may_start);
  for (const auto& client : line_.clients()) {
    client->has_less = HasLess(*client);
  }
  Sequence* const next = line_.Next([this](const Sequence& sequence) {
    return sequence.client->has_less && MayStart(sequence);
  });
  return next != nullptr ? next : line_.Next(may_start);
}

// The client with the most live sequences while there are several.
const ClientShare* Scheduler::LargestClient() const {
  if (!IsContended()) return nullptr;
  return std::max_element(
             line_.clients().begin(), line_.clients().end(),
             [](const auto& a, const auto& b) { return a->live < b->live; })
      ->get();
}

// A client is owed a fair part of each plan for its short prompts if it has
// less than its share of places and blocks, and another one has more
// sequences: the pace that spares decodes is then that other one's gain.
// Returns the part of the time that is due to those that have such prompts.
double Scheduler::NoteOwed() {
  const ClientShare* const largest = LargestClient();
  int owed = 0;
  for (const auto& client : line_.clients()) {
    client->is_owed =
        largest != nullptr && client->live < largest->live && HasLess(*client);
    if (!client->is_owed) continue;
    const auto is_prompt = [&](const Sequence* s) {
      return s->client == client.get() && s->remaining() >= 2 && IsOwed(*s);
    };
    owed += std::any_of(running_.begin(), running_.end(), is_prompt) ||
            std::any_of(client->waiting.begin(), client->waiting.end(),
                        [&](const Sequence* s) { return IsOwed(*s); });
  }
  return owed == 0 ? 0.0 : double(owed) / double(line_.clients().size());
}

// Whether a client that has less than its share has a sequence to start.
bool Scheduler::OneWithLessWaits() const {
  const auto has_less = [this](const Sequence* s) {
    return HasLess(*s->client);
  };
  if (std::any_of(returning_.begin(), returning_.end(), has_less)) return true;
  return std::any_of(
      line_.clients().begin(), line_.clients().end(), [this](const auto& one) {
        return HasLess(*one) &&
               std::any_of(one->waiting.begin(), one->waiting.end(),
                           [this](const Sequence* s) { return MayStart(*s); });
      });
}

// The client that decodes more sequences than all others together, and how
// many of them a plan may carry: as many as the others', and more while those
// are not slowed down much, by prompts that are owed neither. Plans carry a
// part of all decodes, a `groups`th.
std::pair<const ClientShare*, int32_t> Scheduler::MostDecodes(
    int groups, bool beside_owed) const {
  const ClientShare* most = nullptr;
  if (!IsContended()) return {most, 0};
  for (const auto& client : line_.clients()) {
    if (most == nullptr || client->running > most->running) most = client.get();
  }
  int32_t own = 0, others = 0;
  for (const Sequence* sequence : running_) {
    if (!sequence->sampling_in_flight && sequence->remaining() != 1) continue;
    ++(sequence->client == most ? own : others);
  }
  if (others == 0 || own <= others) return {nullptr, 0};
  const int32_t beside = (others + groups - 1) / groups;
  if (beside_owed) return {most, beside};
  return {most, std::max(pace_.decode_limit(beside) - beside, beside)};
}

// The newest one that has had its turn, of the client with the most places
// (or blocks) of those that have more than their share. None that starts in
// this very plan: two could make way for each other without end.
Sequence* Scheduler::GivesWay(const Draft& draft) const {
  Sequence* chosen = nullptr;
  std::pair<int32_t, int32_t> most;
  for (const auto& client : line_.clients()) {
    if (!HasMore(*client)) continue;
    const std::pair<int32_t, int32_t> held = {client->running,
                                              BlocksOf(*client)};
    if (chosen != nullptr && held <= most) continue;
    const auto newest =
        std::find_if(running_.rbegin(), running_.rend(), [&](Sequence* s) {
          return s->client == client.get() && HadItsTurn(*s, draft.now) &&
                 !draft.Starts(*s);
        });
    if (newest == running_.rend()) continue;
    chosen = *newest;
    most = held;
  }
  return chosen;
}

bool Scheduler::HadItsTurn(const Sequence& sequence, TimePoint now) const {
  return now - sequence.last_start >= options_.place_turn;
}

// Those that were preempted return before any other starts, unless another
// client has less than its share: then those that had their turn wait in
// their own client's line. False if nothing changed.
bool Scheduler::ReturnInTurn(const Draft& draft) {
  bool changed = false;
  for (size_t i = returning_.size(); i-- > 0;) {
    Sequence& sequence = *returning_[i];
    if (HasLess(*sequence.client) || !HadItsTurn(sequence, draft.now)) continue;
    returning_.erase(returning_.begin() + static_cast<ptrdiff_t>(i));
    line_.PushBack(sequence);
    changed = true;
  }
  return changed;
}

// Makes way for a client that has less than its share and waits: true if the
// caller should look again at what may start.
bool Scheduler::MakeWay(Draft& draft) {
  if (!IsContended() || !OneWithLessWaits()) return false;
  if (ReturnInTurn(draft)) return true;
  if (!returning_.empty() && !HasLess(*returning_.front()->client)) {
    return false;
  }
  Sequence* const victim = GivesWay(draft);
  if (victim == nullptr) return false;
  Yield(draft, *victim);
  return true;
}

// Takes blocks from younger sequences while there are any. The youngest
// itself waits, with what it has, until others end or need its blocks. The
// oldest is never refused: alone, every sequence fits. What it holds behind a
// window goes first, although plans in flight may still read it: blocks are
// given back when those are committed because they can be found from then on.
bool Scheduler::GrowTables(Draft& draft, Sequence& sequence,
                           int32_t num_tokens) {
  const uint64_t evictions = blocks_.evictions();
  while (!blocks_.Grow(sequence.tables, num_tokens)) {
    if (blocks_.ReleaseBehind(sequence.tables, sequence.num_scheduled)) {
      continue;
    }
    Sequence& victim = *LosesBlocks();
    if (&victim == &sequence) return false;
    if (&victim == running_.back()) {
      Preempt(draft, victim);
    } else {
      Yield(draft, victim);
      draft.preempted = true;
    }
  }
  counters_->cache_evictions += blocks_.evictions() - evictions;
  return true;
}

// The youngest, of the client with the most blocks if that is more than its
// share: one client's growth takes nothing from another that has less. One
// running sequence at a time loses blocks, the others go on.
Sequence* Scheduler::LosesBlocks() const {
  Sequence* const youngest = running_.back();
  if (!IsContended()) return youngest;
  const ClientShare* heaviest = nullptr;
  int32_t most = BlocksEach();
  for (const auto& client : line_.clients()) {
    const int32_t held = client->running > 1 ? BlocksOf(*client) : 0;
    if (held <= most) continue;
    heaviest = client.get();
    most = held;
  }
  if (heaviest == nullptr) return youngest;
  return *std::find_if(running_.rbegin(), running_.rend(),
                       [&](Sequence* s) { return s->client == heaviest; });
}

void Scheduler::Preempt(Draft& draft, Sequence& victim) {
  TakeOut(draft, victim);
  BackToWaiting(victim);
  ForgetStart(draft, victim);
  draft.preempted = true;
}

void Scheduler::Yield(Draft& draft, Sequence& victim) {
  TakeOut(draft, victim);
  std::erase(running_, &victim);
  StopRunning(victim);
  line_.PushBack(victim);
  ForgetStart(draft, victim);
  ++counters_->yields;
}

// The plan computes nothing of it.
void Scheduler::TakeOut(Draft& draft, Sequence& victim) {
  std::vector<Chunk>& chunks = draft.plan.chunks;
  const auto chunk =
      std::find_if(chunks.begin(), chunks.end(),
                   [&](const Chunk& c) { return c.sequence == victim.id; });
  if (chunk != chunks.end()) {
    draft.budget += static_cast<int32_t>(chunk->tokens.size());
    chunks.erase(chunk);
    std::erase(draft.decodes, victim.id);
  }
  ++victim.stats.preemptions;
  ++counters_->preemptions;
}

// Of one that would have started in this very plan no stage has heard.
void Scheduler::ForgetStart(Draft& draft, const Sequence& victim) {
  if (std::erase_if(draft.plan.started, [&](const StartedSequence& started) {
        return started.sequence == victim.id;
      }) > 0) {
    pending_ended_.pop_back();
  }
}

}  // namespace sluice
