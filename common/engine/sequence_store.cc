#include "common/engine/sequence_store.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/base/check.h"

namespace sluice {

void SequenceStore::Add(SequenceId id, GenerateRequest request,
                        std::shared_ptr<TokenSink> sink) {
  SLUICE_CHECK(sequences_.empty() || sequences_.rbegin()->first < id);
  const auto it = sequences_.try_emplace(sequences_.end(), id, id,
                                         std::move(request), std::move(sink));
  try {
    it->second.group = GroupOf(it->second);
    queue_.Push(it->second);
  } catch (...) {
    sequences_.erase(it);
    throw;
  }
}

// Returns the group of an earlier choice of the same request and prompt, or a
// new one; 0 for a sequence without other choices.
uint64_t SequenceStore::GroupOf(const Sequence& sequence) const {
  const GenerateRequest& request = sequence.request;
  if (request.num_choices <= 1) return 0;
  for (const auto& [id, other] : sequences_) {
    if (other.group != 0 && other.request.request_id == request.request_id &&
        other.request.cache_salt == request.cache_salt &&
        other.num_prompt_tokens == sequence.num_prompt_tokens &&
        std::ranges::equal(other.first(other.num_prompt_tokens),
                           sequence.tokens)) {
      return other.group;
    }
  }
  return sequence.id.value();
}

Sequence* SequenceStore::Find(SequenceId id) {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : &it->second;
}

void SequenceStore::Erase(Sequence& sequence) {
  switch (sequence.state) {
    case SequenceState::kQueued:
      queue_.Remove(sequence);
      break;
    case SequenceState::kRunning:
      std::erase(running_, &sequence);
      Stop(sequence);
      break;
    case SequenceState::kPreempted:
      std::erase(preempted_, &sequence);
      break;
  }
  queue_.OnEnd(sequence);
  sequences_.erase(sequence.id);
}

// Running sequences become preempted, for a pipeline that knows no sequence.
void SequenceStore::StopAll() {
  // The last first: each goes to the head of the preempted.
  while (!running_.empty()) Preempt(*running_.back());
  for (auto& [id, sequence] : sequences_) {
    sequence.plans_in_flight = 0;
    sequence.sampling_in_flight = 0;
    sequence.num_void = 0;
  }
  stopped_.clear();
}

void SequenceStore::Reset(const BlockManager::Options& blocks) {
  StopAll();
  blocks_ = BlockManager(blocks);
}

void SequenceStore::Suspend(
    const std::function<bool(const Sequence&)>& go_first, bool is_planned) {
  // Stale blocks for which no sequence waits: with them the stages that were
  // lost before would have to replay what is lost now. By plan, stages may copy
  // what others have, which is all of what is not stale.
  if (is_planned || !await_replays()) blocks_.ForgetStale();
  for (Sequence* sequence : running_) {
    sequence->is_replay = sequence->was_lost = true;
  }
  StopAll();
  std::vector<uint64_t> tickets;
  for (const Sequence* sequence : preempted_) {
    tickets.push_back(sequence->ticket);
  }
  std::stable_sort(preempted_.begin(), preempted_.end(),
                   [&](const Sequence* a, const Sequence* b) {
                     return std::tuple(!go_first(*a), a->num_tokens()) <
                            std::tuple(!go_first(*b), b->num_tokens());
                   });
  for (size_t i = 0; i < tickets.size(); ++i) {
    preempted_[i]->ticket = tickets[i];
  }
}

void SequenceStore::Run(Sequence& sequence, TimePoint now) {
  if (sequence.state == SequenceState::kQueued) {
    queue_.Remove(sequence);
    sequence.ticket = ++last_ticket_;
  } else {
    SLUICE_CHECK(preempted_.front() == &sequence);
    preempted_.pop_front();
  }
  running_.push_back(&sequence);
  ++sequence.client->running;
  sequence.state = SequenceState::kRunning;
  sequence.last_start = now;
}

void SequenceStore::Preempt(Sequence& sequence) {
  SLUICE_CHECK(running_.back() == &sequence);
  running_.pop_back();
  preempted_.push_front(&sequence);
  Stop(sequence);
  sequence.state = SequenceState::kPreempted;
}

void SequenceStore::SetAside(Sequence& sequence) {
  const auto at = std::ranges::find(running_, &sequence);
  if (at == running_.end()) return;
  sequence.is_replay = true;
  std::vector<uint64_t> tickets;
  for (auto it = at; it != running_.end(); ++it) {
    tickets.push_back((*it)->ticket);
  }
  std::rotate(at, at + 1, running_.end());
  auto ticket = tickets.begin();
  for (auto it = at; it != running_.end(); ++it) (*it)->ticket = *ticket++;
  Preempt(sequence);
}

void SequenceStore::Requeue(Sequence& sequence) {
  if (sequence.state == SequenceState::kRunning) {
    std::erase(running_, &sequence);
    Stop(sequence);
  } else {
    std::erase(preempted_, &sequence);
  }
  queue_.PushFront(sequence);
  sequence.state = SequenceState::kQueued;
}

// Takes the running sequence's blocks; the next plan tells the stages.
void SequenceStore::Stop(Sequence& sequence) {
  blocks_.Release(sequence.tables);
  --sequence.client->running;
  sequence.num_computed = 0;
  sequence.num_scheduled = 0;
  sequence.num_reserved = 0;
  sequence.replay_end = 0;
  sequence.num_told = 0;
  stopped_.push_back(sequence.id);
}

int32_t SequenceStore::num_decoding() const {
  return static_cast<int32_t>(
      std::count_if(running_.begin(), running_.end(),
                    [](const Sequence* s) { return s->is_decoding(); }));
}

bool SequenceStore::await_replays() const {
  if (blocks_.num_stale() == 0) return false;
  return std::ranges::any_of(preempted_, &Sequence::was_lost) ||
         std::ranges::any_of(running_, [](const Sequence* s) {
           return s->was_lost && s->num_computed < s->replay_end;
         });
}

Status SequenceStore::CheckClients() const {
  size_t queued = 0, live = 0;
  for (const auto& client : queue_.clients()) {
    queued += client->waiting.size();
    live += static_cast<size_t>(client->live);
    const auto running = std::count_if(
        running_.begin(), running_.end(),
        [&](const Sequence* s) { return s->client == client.get(); });
    if (running != client->running) {
      return Internal("client ", client->name, " counts ", client->running,
                      " running sequences, has ", running);
    }
    for (const Sequence* sequence : client->waiting) {
      if (sequence->client != client.get() ||
          sequence->state != SequenceState::kQueued ||
          sequence->request.client != client->name) {
        return Internal("sequence ", sequence->id, " waits in a wrong queue");
      }
    }
  }
  if (running_.size() + preempted_.size() + queued != sequences_.size() ||
      queued != queue_.size() || live != sequences_.size()) {
    return Internal(running_.size(), " running, ", preempted_.size(),
                    " preempted and ", queued, " queued sequences of ",
                    sequences_.size());
  }
  return OkStatus();
}

// Running, then preempted, in the order of first start; then the queue.
Status SequenceStore::CheckIntegrity() const {
  SLUICE_RETURN_IF_ERROR(CheckClients());
  std::vector<const Sequence*> started(running_.begin(), running_.end());
  started.insert(started.end(), preempted_.begin(), preempted_.end());
  uint64_t ticket = 0;
  for (size_t i = 0; i < started.size(); ++i) {
    const SequenceState state = i < running_.size() ? SequenceState::kRunning
                                                    : SequenceState::kPreempted;
    if (started[i]->ticket <= std::exchange(ticket, started[i]->ticket) ||
        started[i]->state != state) {
      return Internal("sequence ", started[i]->id, " is out of order");
    }
  }
  std::vector<const std::vector<BlockTable>*> tables;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.state == SequenceState::kRunning) {
      tables.push_back(&sequence.tables);
    } else if (!sequence.tables.empty() || sequence.num_scheduled != 0) {
      return Internal("sequence ", id, ": waits and holds blocks");
    }
  }
  return blocks_.CheckIntegrity(tables);
}

}  // namespace sluice
