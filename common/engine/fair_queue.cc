#include "common/engine/fair_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace sluice {
namespace {

// Credit of one round. Small against prompts, so that turns are short.
constexpr int64_t kQuantum = 256;

}  // namespace

void FairQueue::Push(Sequence& sequence) {
  const std::string& name = sequence.request.client;
  const auto found = std::ranges::find(
      clients_, name, [](const auto& one) { return one->name; });
  ClientShare* client = nullptr;
  if (found != clients_.end()) {
    client = found->get();
    auto& waiting = client->waiting;
    auto place = waiting.end();
    // What had started before goes on first, whatever its priority is.
    while (place != waiting.begin() && !(*std::prev(place))->was_started &&
           (*std::prev(place))->request.priority > sequence.request.priority) {
      --place;
    }
    waiting.insert(place, &sequence);
  } else {
    auto fresh = std::make_unique<ClientShare>();
    fresh->name = name;
    fresh->waiting.push_back(&sequence);
    clients_.push_back(std::move(fresh));
    client = clients_.back().get();
  }
  sequence.client = client;
  ++client->live;
  ++size_;
}

void FairQueue::PushFront(Sequence& sequence) {
  sequence.client->waiting.push_front(&sequence);
  ++size_;
}

void FairQueue::Remove(Sequence& sequence) {
  ClientShare& client = *sequence.client;
  const auto it =
      std::find(client.waiting.begin(), client.waiting.end(), &sequence);
  if (it == client.waiting.end()) return;  // an exception came in between
  client.waiting.erase(it);
  --size_;
  if (reserved_ == &sequence) reserved_ = nullptr;
  // Credit does not accumulate.
  if (client.waiting.empty()) {
    client.credit = std::min<int64_t>(client.credit, 0);
  }
}

void FairQueue::OnEnd(const Sequence& sequence) {
  ClientShare& client = *sequence.client;
  if (--client.live > 0) return;
  const auto it =
      std::find_if(clients_.begin(), clients_.end(),
                   [&](const auto& one) { return one.get() == &client; });
  const size_t index = static_cast<size_t>(it - clients_.begin());
  clients_.erase(it);
  if (turn_ > index) --turn_;
  if (turn_ >= clients_.size()) turn_ = 0;
}

Sequence* FairQueue::Next(const MayStart& may_start) {
  if (reserved_ != nullptr && may_start(*reserved_)) return reserved_;
  struct Candidate {
    size_t index;
    Sequence* first;
  };
  std::vector<Candidate> candidates;  // from the client in turn on
  for (size_t k = 0; k < clients_.size(); ++k) {
    const size_t index = (turn_ + k) % clients_.size();
    for (Sequence* sequence : clients_[index]->waiting) {
      if (!may_start(*sequence)) continue;
      candidates.push_back({index, sequence});
      break;
    }
  }
  if (candidates.empty()) return nullptr;
  int64_t most = std::numeric_limits<int64_t>::min();
  for (const Candidate& one : candidates) {
    most = std::max(most, clients_[one.index]->credit);
  }
  if (most <= 0) {
    const int64_t rounds = (kQuantum - most) / kQuantum;
    for (const Candidate& one : candidates) {
      clients_[one.index]->credit += rounds * kQuantum;
    }
    // The turn passes on: the client that had it last has used its credit up.
    if (candidates.size() > 1 && candidates[0].index == turn_) {
      std::rotate(candidates.begin(), candidates.begin() + 1, candidates.end());
    }
  }
  const auto chosen = std::find_if(
      candidates.begin(), candidates.end(),
      [&](const Candidate& one) { return clients_[one.index]->credit > 0; });
  turn_ = chosen->index;
  return chosen->first;
}

void FairQueue::Charge(ClientShare& client, int64_t tokens) {
  bool contended = false;
  for (const auto& other : clients_) {
    contended =
        contended || (other.get() != &client && !other->waiting.empty());
  }
  if (contended) client.credit -= tokens;
}

}  // namespace sluice
