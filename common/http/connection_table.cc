#include "common/http/connection_table.h"

#include <algorithm>
#include <utility>

#include "common/http/failed_keys.h"

namespace sluice::http {

std::unique_ptr<ConnectionTable::Place> ConnectionTable::Take(
    std::string_view address) {
  std::function<void()> close;
  std::unique_ptr<Place> place;
  {
    MutexLock lock(mutex_);
    std::string name = ClientOfAddress(address);
    Client& client = clients_[name];
    client.name = std::move(name);
    ++client.connections;
    const size_t taken = idle_.size() + reading_.size() + answering_.size();
    if (taken >= static_cast<size_t>(limit_)) {
      close = MakeRoom(client);
      if (!close) {
        Release(client);
        return nullptr;
      }
    }
    answering_.push_front({client, &answering_, nullptr});
    place.reset(new Place(*this, answering_.begin()));
  }
  if (close) close();
  return place;
}

std::function<void()> ConnectionTable::MakeRoom(const Client& newcomer) {
  if (leaving_.size() >= size_t{kMaxLeaving}) return nullptr;
  const auto over_share = [this](const Entry& entry) {
    return IsOverShare(entry.client);
  };
  Entries* list = &idle_;
  auto chosen = idle_.end();
  if (IsOverShare(newcomer)) {
    chosen = std::find_if(idle_.begin(), idle_.end(), [&](const Entry& entry) {
      return &entry.client == &newcomer;
    });
  } else {
    chosen = std::find_if(idle_.begin(), idle_.end(), over_share);
    if (chosen == idle_.end()) chosen = idle_.begin();
    if (idle_.empty()) {
      list = &reading_;
      chosen = std::find_if(reading_.begin(), reading_.end(), over_share);
    }
  }
  if (chosen == list->end() && client_share_ >= limit_) {
    // Without shares the newest goes before the request read for longest.
    list = &reading_;
    chosen = reading_.begin();
  }
  if (chosen == list->end()) return nullptr;
  Move(chosen, leaving_);
  return chosen->close;
}

ConnectionTable::Entries& ConnectionTable::ListOf(Activity activity) {
  switch (activity) {
    case Activity::kIdle:
      return idle_;
    case Activity::kReading:
      return reading_;
    case Activity::kAnswering:
      break;
  }
  return answering_;
}

void ConnectionTable::Move(Entries::iterator entry, Entries& to) {
  Entries* const from = std::exchange(entry->list, &to);
  to.splice(to.end(), *from, entry);
}

void ConnectionTable::Release(Client& client) {
  if (--client.connections > 0) return;
  const std::string name = client.name;  // erase ends the client
  clients_.erase(name);
}

ConnectionTable::Place::~Place() {
  MutexLock lock(table_.mutex_);
  Client& client = entry_->client;
  entry_->list->erase(entry_);
  table_.Release(client);
}

void ConnectionTable::Place::Open(std::function<void()> close) {
  MutexLock lock(table_.mutex_);
  entry_->close = std::move(close);
  table_.Move(entry_, table_.idle_);
}

void ConnectionTable::Place::Set(Activity activity) {
  MutexLock lock(table_.mutex_);
  table_.Move(entry_, table_.ListOf(activity));
}

}  // namespace sluice::http
