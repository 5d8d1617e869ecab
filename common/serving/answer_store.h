#ifndef SLUICE_COMMON_SERVING_ANSWER_STORE_H_
#define SLUICE_COMMON_SERVING_ANSWER_STORE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace sluice::serving {

// Answers that clients ask for again, and go on with, by id. Each API key has a
// room of its own, bounded in bytes, answers and age: what is oldest makes
// room, and no key finds what is another's. Any thread.
class AnswerStore {
 public:
  struct Options {
    size_t max_bytes = 0;  // of each key; 0: nothing is kept
    size_t max_answers = 4096;
    Duration max_age = std::chrono::hours(24);
  };
  // Texts of JSON.
  struct Answer {
    std::string answer;
    std::string items;  // what was asked, an array
    // Returns the bytes in memory, estimated.
    size_t memory() const;
  };
  using Entry = std::shared_ptr<const Answer>;

  explicit AnswerStore(const Options& options) : options_(options) {}

  bool is_on() const { return options_.max_bytes > 0; }

  // Keeps an answer of the key `tenant` (empty: a server without keys) in the
  // place of one with its id. Returns whether it is kept: an answer of more
  // bytes than a key has is not. After bad_alloc it is not, either.
  bool Put(const std::string& tenant, const std::string& id, Answer answer);
  // NOT_FOUND if the key has no answer of that id.
  StatusOr<Entry> Find(const std::string& tenant, std::string_view id);
  // Forgets an answer. NOT_FOUND likewise.
  Status Erase(const std::string& tenant, std::string_view id);

  // Returns the bytes of all keys.
  size_t bytes();

 private:
  struct Kept {
    std::string id;
    Entry entry;
    TimePoint until;
  };
  struct Room {
    std::list<Kept> answers;  // the oldest first
    std::map<std::string, std::list<Kept>::iterator, std::less<>> by_id;
    size_t bytes = 0;
  };

  // Moves an answer of `room` to `dropped`, whose memory is freed without the
  // lock.
  static void Drop(Room& room, std::list<Kept>::iterator kept,
                   std::list<Kept>& dropped);
  // Drops what is too old, of all keys.
  void Expire(std::list<Kept>& dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Mutex mutex_;
  std::map<std::string, Room> rooms_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_ANSWER_STORE_H_
