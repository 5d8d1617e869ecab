#include "common/serving/answer_store.h"

#include <utility>

namespace sluice::serving {
namespace {

// Of an entry's list, map and strings.
constexpr size_t kKeptAnswerBytes = 512;

Status NoAnswer(std::string_view id) {
  return NotFound("there is no response ", id.substr(0, 200),
                  ": it was never kept, or is forgotten");
}

}  // namespace

size_t AnswerStore::Answer::memory() const {
  return kKeptAnswerBytes + answer.size() + items.size();
}

bool AnswerStore::Put(const std::string& tenant, const std::string& id,
                      Answer answer) {
  const size_t bytes = answer.memory();
  std::list<Kept> made;
  made.push_back({id, std::make_shared<const Answer>(std::move(answer)),
                  Clock::now() + options_.max_age});
  std::list<Kept> dropped;
  MutexLock lock(mutex_);
  Expire(dropped);
  if (bytes > options_.max_bytes) return false;
  Room& room = rooms_[tenant];
  if (const auto same = room.by_id.find(id); same != room.by_id.end()) {
    Drop(room, same->second, dropped);
  }
  while (!room.answers.empty() &&
         (room.bytes + bytes > options_.max_bytes ||
          room.answers.size() >= options_.max_answers)) {
    Drop(room, room.answers.begin(), dropped);
  }
  room.by_id.emplace(id, made.begin());  // may throw; the rest does not
  room.answers.splice(room.answers.end(), made);
  room.bytes += bytes;
  return true;
}

StatusOr<AnswerStore::Entry> AnswerStore::Find(const std::string& tenant,
                                               std::string_view id) {
  std::list<Kept> dropped;
  MutexLock lock(mutex_);
  Expire(dropped);
  const auto room = rooms_.find(tenant);
  if (room == rooms_.end()) return NoAnswer(id);
  const auto found = room->second.by_id.find(id);
  if (found == room->second.by_id.end()) return NoAnswer(id);
  return found->second->entry;
}

Status AnswerStore::Erase(const std::string& tenant, std::string_view id) {
  std::list<Kept> dropped;
  MutexLock lock(mutex_);
  Expire(dropped);
  const auto room = rooms_.find(tenant);
  if (room == rooms_.end()) return NoAnswer(id);
  const auto found = room->second.by_id.find(id);
  if (found == room->second.by_id.end()) return NoAnswer(id);
  Drop(room->second, found->second, dropped);
  return OkStatus();
}

size_t AnswerStore::bytes() {
  MutexLock lock(mutex_);
  size_t bytes = 0;
  for (const auto& [tenant, room] : rooms_) bytes += room.bytes;
  return bytes;
}

void AnswerStore::Drop(Room& room, std::list<Kept>::iterator kept,
                       std::list<Kept>& dropped) {
  room.bytes -= kept->entry->memory();
  room.by_id.erase(kept->id);
  dropped.splice(dropped.end(), room.answers, kept);
}

void AnswerStore::Expire(std::list<Kept>& dropped) {
  const TimePoint now = Clock::now();
  for (auto& [tenant, room] : rooms_) {
    while (!room.answers.empty() && room.answers.front().until <= now) {
      Drop(room, room.answers.begin(), dropped);
    }
  }
}

}  // namespace sluice::serving
