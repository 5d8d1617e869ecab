#include "common/engine/batch_policy.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr int CeilDiv(int a, int b) { return (a + b - 1) / b; }

}  // namespace

bool PromptsGoAhead(const SchedulerState& state) {
  constexpr int kPlans = 20;  // of `ahead_within`, for a full plan of prompts
  const Duration plan = state.pace.prompt_plan(state.max_step_tokens());
  if (state.max_plans < 2 || state.options.max_plans_in_flight > 0 ||
      state.options.ahead_within == Duration::zero() ||
      plan / kPlans > state.options.ahead_within) {
    return false;
  }
  const std::vector<Sequence*>& running = state.sequences.running();
  const auto decodes = [](const Sequence* sequence) {
    return sequence->is_decoding() || sequence->remaining() == 1;
  };
  const auto has_more = [](const Sequence* sequence) {
    return sequence->remaining() > 1;
  };
  return std::ranges::none_of(running, decodes) &&
         std::ranges::any_of(running, has_more);
}

// N plans must carry decodes to keep N stages busy, each about an Nth of them.
// Plans with few decodes cost as much as plans with some, so there are no more
// groups than keep `min_decode_batch` each, and at most that many plans in
// flight carry decodes. A sequence that becomes ready joins the next of them,
// so groups merge when sequences end. One more plan may go ahead with decodes.
BatchPolicy::Decodes BatchPolicy::NextDecodes(bool beside_owed) const {
  Decodes decodes;
  const SequenceStore& sequences = state_.sequences;
  for (Sequence* sequence : sequences.running()) {
    if (sequence->remaining() == 1 && !sequence->awaits_mask()) {
      decodes.ready.push_back(sequence);
    }
  }
  const std::vector<Sequence*> ahead = DecodesAhead();
  decodes.ready.insert(decodes.ready.end(), ahead.begin(), ahead.end());
  if (decodes.ready.empty()) return decodes;
  const int decoding = sequences.num_decoding();
  const int batch = std::max(CeilDiv(decoding, state_.max_plans),
                             state_.options.min_decode_batch);
  const int groups = CeilDiv(decoding, batch);
  const auto carrying = std::count_if(
      state_.in_flight.begin(), state_.in_flight.end(),
      [](const PlanInFlight& plan) { return plan.num_decodes > 0; });
  if (carrying >= groups + (ahead.empty() ? 0 : 1)) return {};
  std::stable_sort(decodes.ready.begin(), decodes.ready.end(),
                   [](const Sequence* a, const Sequence* b) {
                     return a->last_step < b->last_step;
                   });
  decodes.room = CeilDiv(decoding, groups);
  LimitLargest(groups, beside_owed, decodes);
  return decodes;
}

// Returns the sequences that go on behind the tokens of the oldest sampling
// plan; none if one of them has no block to do so. A sequence with a constraint
// waits for its token, which the next mask depends on.
std::vector<Sequence*> BatchPolicy::DecodesAhead() const {
  if (state_.options.ahead_within == Duration::zero() ||
      state_.options.propose_drafts ||
      state_.pace.expected(state_.sequences.num_decoding(), 0) >
          state_.options.ahead_within) {
    return {};
  }
  const auto oldest =
      std::ranges::find_if(state_.in_flight, [](const PlanInFlight& plan) {
        return std::ranges::any_of(plan.chunks, &PlannedChunk::samples);
      });
  if (oldest == state_.in_flight.end() ||
      state_.next_step.value() - oldest->step_id.value() > kMaxStepsBack) {
    return {};
  }
  const BlockManager& blocks = state_.sequences.blocks();
  std::vector<Sequence*> ahead;
  int32_t needed = 0;
  for (const PlannedChunk& chunk : oldest->chunks) {
    Sequence* const sequence = state_.sequences.Find(chunk.sequence);
    if (!chunk.samples || sequence == nullptr ||
        sequence->state != SequenceState::kRunning ||
        sequence->remaining() != 0 || sequence->is_constrained()) {
      continue;
    }
    const int32_t next = sequence->num_tokens() + 1;
    if (sequence->num_emitted() + 1 >= sequence->request.max_tokens ||
        next >= state_.limits.max_context) {
      continue;
    }
    needed += blocks.Needed(sequence->tables, next);
    ahead.push_back(sequence);
  }
  if (!blocks.HasRoom(needed, std::ssize(ahead))) ahead.clear();
  return ahead;
}

// A client that decodes more sequences than all others together has as many in
// the plan as the others. It has more if that slows the others little and no
// owed prompt is there. Plans carry one `groups`th of all decodes.
void BatchPolicy::LimitLargest(int groups, bool beside_owed,
                               Decodes& decodes) const {
  if (!IsContended()) return;
  const ClientShare* const most =
      std::max_element(
          clients().begin(), clients().end(),
          [](const auto& a, const auto& b) { return a->running < b->running; })
          ->get();
  int32_t own = 0, others = 0;
  for (const Sequence* sequence : state_.sequences.running()) {
    if (!sequence->is_decoding()) continue;
    ++(sequence->client == most ? own : others);
  }
  if (others == 0 || own <= others) return;
  const int32_t beside = CeilDiv(others, groups);
  decodes.most = most;
  decodes.room_of_most =
      beside_owed ? beside
                  : std::max(state_.pace.decode_limit(beside) - beside, beside);
}

int32_t BatchPolicy::PromptBudget() const {
  const int32_t full = state_.max_step_tokens();
  return state_.sequences.num_decoding() == 0
             ? full
             : std::min(full, PromptBudgetBesideDecodes());
}

int32_t BatchPolicy::PromptBudgetBesideDecodes() const {
  return state_.pace.prompt_budget(NumShortPrompts(),
                                   state_.sequences.num_decoding());
}

int32_t BatchPolicy::OwedBudget(double share) const {
  return std::max(PromptBudgetBesideDecodes(), state_.pace.share_budget(share));
}

bool BatchPolicy::KeepsPromptsOut(bool has_decodes) const {
  return state_.pace.wants_decode_only_plan() ||
         (!has_decodes && !state_.pace.allows_concurrent_prefill());
}

// Returns the number of short prompts, counted as far as it matters. Those of
// the largest client do not count: the others do not wait for them.
int32_t BatchPolicy::NumShortPrompts() const {
  constexpr int32_t kMostCounted = 128;  // beside some tens of decodes
  const ClientShare* const largest = LargestClient();
  int32_t number = 0;
  const auto count = [&](const Sequence* sequence) {
    const int32_t tokens = sequence->remaining();
    if (sequence->client == largest) return;
    number += tokens >= 2 && tokens <= kShortPrompt ? 1 : 0;
  };
  const SequenceStore& sequences = state_.sequences;
  std::ranges::for_each(sequences.running(), count);
  std::ranges::for_each(sequences.preempted(), count);
  for (const auto& client : clients()) {
    for (const Sequence* sequence : client->waiting) {
      if (client.get() == largest || number >= kMostCounted) {
        break;
      }
      count(sequence);
    }
  }
  return number;
}

// Returns the client with the most live sequences; null for a single client.
const ClientShare* BatchPolicy::LargestClient() const {
  if (!IsContended()) return nullptr;
  return std::max_element(
             clients().begin(), clients().end(),
             [](const auto& a, const auto& b) { return a->live < b->live; })
      ->get();
}

// A client is owed a fair part of each plan for its short prompts if it is
// below its share of places and blocks, and another client has more sequences:
// the pace that spares decodes would serve that other client.
double BatchPolicy::NoteOwed() const {
  const ClientShare* const largest = LargestClient();
  const auto& running = state_.sequences.running();
  int owed = 0;
  for (const auto& client : clients()) {
    client->is_owed =
        largest != nullptr && client->live < largest->live && HasLess(*client);
    if (!client->is_owed) continue;
    const auto is_prompt = [&](const Sequence* s) {
      return s->client == client.get() && s->remaining() >= 2 && IsOwed(*s);
    };
    owed += std::any_of(running.begin(), running.end(), is_prompt) ||
            std::any_of(client->waiting.begin(), client->waiting.end(),
                        [&](const Sequence* s) { return IsOwed(*s); });
  }
  return owed == 0 ? 0.0 : double(owed) / double(clients().size());
}

// A sequence does not start while another choice of its request computes their
// prompt, nor before the stages have forgotten its earlier run, nor if only the
// token is left whose draw awaits a mask.
bool BatchPolicy::MayStart(const Sequence& sequence) const {
  if (sequence.plans_in_flight > 0) return false;
  if (sequence.num_tokens() == 1 && sequence.awaits_mask()) return false;
  const SequenceStore& sequences = state_.sequences;
  if (sequence.was_started &&
      std::ranges::count(sequences.stopped(), sequence.id) > 0) {
    return false;
  }
  if (sequence.group == 0 || sequence.wants_all_logits()) return true;
  const int32_t shared = sequence.num_tokens() / kBlockTokens * kBlockTokens;
  return std::ranges::none_of(sequences.running(), [&](const Sequence* s) {
    return s->group == sequence.group && s->num_computed < shared;
  });
}

Sequence* BatchPolicy::NextAlone() const {
  const SequenceStore& sequences = state_.sequences;
  for (Sequence* sequence : sequences.running()) {
    if (RunsAlone(*sequence)) return sequence;
  }
  if (sequences.preempted().empty()) return nullptr;
  Sequence* const next = sequences.preempted().front();
  return RunsAlone(*next) ? next : nullptr;
}

// Preempted sequences come first, then clients below their share, even before a
// sequence that waits for blocks.
Sequence* BatchPolicy::NextToStart(bool owed) const {
  const auto& preempted = state_.sequences.preempted();
  if (!owed && !preempted.empty()) return preempted.front();
  if (state_.holds_starts) return nullptr;
  FairQueue& queue = state_.sequences.queue();
  const auto may_start = [this](const Sequence& s) { return MayStart(s); };
  if (!owed && !IsContended()) return queue.Next(may_start);
  for (const auto& client : clients()) {
    client->has_less = (!owed || client->is_owed) && HasLess(*client);
  }
  const auto has_less = [&](const Sequence& s) {
    return s.client->has_less && (!owed || IsOwed(s));
  };
  if (!preempted.empty()) {
    return has_less(*preempted.front()) ? preempted.front() : nullptr;
  }
  Sequence* const next =
      queue.Next([&](const Sequence& s) { return has_less(s) && MayStart(s); });
  return next != nullptr || owed ? next : queue.Next(may_start);
}

QueueState BatchPolicy::Queue() const {
  const SequenceStore& sequences = state_.sequences;
  QueueState queue;
  queue.waiting = static_cast<int>(sequences.num_waiting());
  for (const Sequence* sequence : sequences.preempted()) {
    queue.prompt_tokens += sequence->num_tokens();
  }
  queue.history_tokens = queue.prompt_tokens;
  queue.places = state_.max_running();
  for (const auto& client : sequences.queue().clients()) {
    QueueState::Client& own = queue.clients.emplace_back();
    own.name = client->name;
    own.running = client->running;
    own.waiting = static_cast<int>(client->waiting.size());
    for (const Sequence* sequence : client->waiting) {
      queue.history_tokens += sequence->num_tokens();
      own.prompt_tokens +=
          PromptWork(sequence->request, sequence->num_tokens());
    }
    queue.prompt_tokens += own.prompt_tokens;
  }
  // Nothing that runs, nothing that holds blocks: then what was blocked has
  // ended, and no plan came since.
  if (!state_.admission_blocked || sequences.running().empty()) {
    queue.free_places =
        queue.places - static_cast<int>(sequences.running().size());
  }
  const StepPace& pace = state_.pace;
  queue.rates_known = pace.known();
  queue.prompt_seconds = pace.prompt_seconds();
  queue.shared_prompt_seconds = queue.owed_prompt_seconds =
      queue.prompt_seconds;
  queue.decode_seconds = pace.decode_seconds();
  queue.completion_tokens = pace.completion_tokens();
  // Each plan of this many prompt tokens carries all decodes along.
  if (const int32_t decoding = sequences.num_decoding(); decoding > 0) {
    const double decodes = decoding * queue.decode_seconds;
    const double clients = double(std::max<size_t>(queue.clients.size(), 2));
    queue.shared_prompt_seconds += decodes / PromptBudget();
    queue.owed_prompt_seconds += decodes / OwedBudget(1 / clients);
  }
  return queue;
}

// A prefix that several sequences share counts for each of them.
int32_t BatchPolicy::BlocksOf(const ClientShare& client) const {
  const BlockManager& blocks = state_.sequences.blocks();
  int32_t held = 0;
  for (const Sequence* sequence : state_.sequences.running()) {
    if (sequence->client == &client) held += blocks.NumHeld(sequence->tables);
  }
  return held;
}

bool BatchPolicy::HasLess(const ClientShare& client) const {
  return client.running < PlacesEach() &&
         (client.running == 0 || BlocksOf(client) < BlocksEach());
}

bool BatchPolicy::HasMore(const ClientShare& client) const {
  return client.running > PlacesEach() ||
         (client.running > 1 && BlocksOf(client) > BlocksEach());
}

bool BatchPolicy::ClientWithLessWaits() const {
  const auto has_less = [&](const auto& s) { return HasLess(*s->client); };
  const auto may_start = [&](const auto& s) { return MayStart(*s); };
  return std::ranges::any_of(state_.sequences.preempted(), has_less) ||
         std::ranges::any_of(clients(), [&](const auto& client) {
           return HasLess(*client) &&
                  std::ranges::any_of(client->waiting, may_start);
         });
}

Sequence* BatchPolicy::GivesWay(const std::vector<StartedSequence>& started,
                                TimePoint now) const {
  const auto& running = state_.sequences.running();
  Sequence* chosen = nullptr;
  std::pair<int32_t, int32_t> most;
  for (const auto& client : clients()) {
    if (!HasMore(*client)) continue;
    const std::pair<int32_t, int32_t> held = {client->running,
                                              BlocksOf(*client)};
    if (chosen != nullptr && held <= most) continue;
    const auto newest =
        std::find_if(running.rbegin(), running.rend(), [&](Sequence* s) {
          return s->client == client.get() && HadItsTurn(*s, now) &&
                 std::ranges::find(started, s->id,
                                   &StartedSequence::sequence) == started.end();
        });
    if (newest == running.rend()) continue;
    chosen = *newest;
    most = held;
  }
  return chosen;
}

// The youngest sequence, of the client with the most blocks if that is above
// its share: a client's growth takes nothing from a client with less. One
// running sequence at a time loses blocks.
Sequence* BatchPolicy::LosesBlocks() const {
  const auto& running = state_.sequences.running();
  if (!IsContended()) return running.back();
  const ClientShare* heaviest = nullptr;
  int32_t most = BlocksEach();
  for (const auto& client : clients()) {
    const int32_t held = client->running > 1 ? BlocksOf(*client) : 0;
    if (held <= most) continue;
    heaviest = client.get();
    most = held;
  }
  if (heaviest == nullptr) return running.back();
  return *std::find_if(running.rbegin(), running.rend(),
                       [&](Sequence* s) { return s->client == heaviest; });
}

}  // namespace sluice
