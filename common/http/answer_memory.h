#ifndef SLUICE_COMMON_HTTP_ANSWER_MEMORY_H_
#define SLUICE_COMMON_HTTP_ANSWER_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "common/base/mutex.h"

namespace sluice::http {

// Counts the bytes of all answers in memory: collected answers, and written
// ones that their clients have not read yet. Within the limit a client may hold
// any number of bytes. Above it, each further large answer cuts the largest
// answer of the client that holds the most. Any thread.
class AnswerMemory {
 public:
  // One answer, which holds bytes.
  class Holder {
   public:
    explicit Holder(std::string client) : client_(std::move(client)) {}
    virtual ~Holder() = default;
    // Makes the answer end soon, with an error if none of it is out. Called
    // once, by any thread, under the memory's lock.
    virtual void Cut() = 0;

   protected:
    bool is_cut() const { return cut_; }

   private:
    friend class AnswerMemory;
    const std::string client_;
    std::atomic<long long> bytes_{0};
    std::atomic<bool> cut_{false};
  };

  // Answers up to this size are never cut and cut no other answer.
  static constexpr long long kSmallBytes = 64 << 10;

  explicit AnswerMemory(size_t limit) : limit_(static_cast<long long>(limit)) {}

  void Add(Holder& holder);
  void Remove(Holder& holder);  // with all that it holds

  // Adds `bytes`, which may be negative, to what `holder` holds. False:
  // `holder` is the answer to cut; its bytes count all the same.
  bool Change(Holder& holder, long long bytes);

  long long bytes() const { return all_; }

 private:
  bool MakeRoom(Holder& holder);

  const long long limit_;
  std::atomic<long long> all_{0};
  Mutex mutex_;
  std::set<Holder*> holders_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_ANSWER_MEMORY_H_
