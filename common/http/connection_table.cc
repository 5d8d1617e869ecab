#include "common/http/connection_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/http/failed_keys.h"

namespace sluice::http {

std::unique_ptr<ConnectionTable::Place> ConnectionTable::Take(
    std::string_view address) {
  std::function<void()> close;
  std::unique_ptr<Place> place;
  {
    MutexLock lock(mutex_);
    Client& client = Join(ClientOfAddress(address));
    if (Taken() >= static_cast<size_t>(limit_)) {
      close = MakeRoom(client);
      if (!close) {
        Release(client);
        return nullptr;
      }
    }
    try {
      Entries entry;
      entry.push_front({&client, &answering_, ++clock_, nullptr});
      place.reset(new Place(*this, entry.begin()));
      answering_.splice(answering_.begin(), entry);
    } catch (...) {
      Release(client);
      if (close) close();  // it only posts
      throw;
    }
  }
  if (close) close();
  return place;
}

size_t ConnectionTable::Taken() const {
  return idle_.size() + reading_ + answering_.size() + done_.size();
}

std::function<void()> ConnectionTable::MakeRoom(Client& newcomer) {
  if (leaving_.size() >= size_t{kMaxLeaving}) return nullptr;
  const Choice choice = Choose(newcomer);
  if (choice.entry == choice.list->end()) return nullptr;
  Move(choice.entry, leaving_);
  return choice.entry->close;
}

ConnectionTable::Choice ConnectionTable::Choose(Client& newcomer) {
  if (!done_.empty()) return {&done_, done_.begin()};
  // Loops, since clang's analysis sees no lock within a lambda.
  auto chosen = idle_.begin();
  if (IsOverShare(newcomer)) {
    while (chosen != idle_.end() && chosen->client != &newcomer) ++chosen;
    if (chosen != idle_.end()) return {&idle_, chosen};
    return {&newcomer.reading, newcomer.reading.begin()};
  }
  Client* const largest = LargestReader();
  if (largest != nullptr && largest->reading.size() > idle_.size()) {
    return {&largest->reading, largest->reading.begin()};
  }
  while (chosen != idle_.end() && !IsOverShare(*chosen->client)) ++chosen;
  return {&idle_, chosen == idle_.end() ? idle_.begin() : chosen};
}

ConnectionTable::Client* ConnectionTable::LargestReader() {
  Client* largest = nullptr;
  for (auto& [unused, client] : clients_) {
    const size_t size = client.reading.size();
    if (size == 0) continue;
    const size_t most = largest == nullptr ? 0 : largest->reading.size();
    if (size > most || (size == most && client.reading.front().since <
                                            largest->reading.front().since)) {
      largest = &client;
    }
  }
  return largest;
}

ConnectionTable::Entries& ConnectionTable::ListOf(Client& client,
                                                  Activity activity) {
  switch (activity) {
    case Activity::kIdle:
      return idle_;
    case Activity::kReading:
      return client.reading;
    case Activity::kAnswering:
      break;
    case Activity::kDone:
      return done_;
  }
  return answering_;
}

void ConnectionTable::Move(Entries::iterator entry, Entries& to) {
  Entries* const from = std::exchange(entry->list, &to);
  if (from == &entry->client->reading) --reading_;
  if (&to == &entry->client->reading) ++reading_;
  to.splice(to.end(), *from, entry);
}

ConnectionTable::Client& ConnectionTable::Join(std::string name) {
  Client& client = clients_[name];
  client.name = std::move(name);
  ++client.connections;
  return client;
}

void ConnectionTable::Release(Client& client) {
  if (--client.connections > 0) return;
  const std::string name = client.name;  // erase ends the client
  clients_.erase(name);
}

ConnectionTable::Place::~Place() {
  MutexLock lock(table_.mutex_);
  Client& client = *entry_->client;
  if (entry_->list == &client.reading) --table_.reading_;
  entry_->list->erase(entry_);
  table_.Release(client);
}

void ConnectionTable::Place::Open(std::function<void()> close) {
  MutexLock lock(table_.mutex_);
  entry_->close = std::move(close);
  table_.Move(entry_, entry_->client->reading);
}

void ConnectionTable::Place::Set(Activity activity) {
  MutexLock lock(table_.mutex_);
  Entries& to = table_.ListOf(*entry_->client, activity);
  // A request's first byte makes its connection no younger.
  if (&to == entry_->list && activity == Activity::kReading) return;
  entry_->since = ++table_.clock_;
  table_.Move(entry_, to);
}

void ConnectionTable::Place::SetAddress(std::string_view address) {
  MutexLock lock(table_.mutex_);
  Client& from = *entry_->client;
  std::string name = ClientOfAddress(address);
  if (from.name == name) return;
  Client& to = table_.Join(std::move(name));
  if (entry_->list == &from.reading) {
    // By age among the client's own.
    auto at = to.reading.end();
    while (at != to.reading.begin() && std::prev(at)->since > entry_->since) {
      --at;
    }
    to.reading.splice(at, from.reading, entry_);
    entry_->list = &to.reading;
  }
  entry_->client = &to;
  table_.Release(from);
}

}  // namespace sluice::http
