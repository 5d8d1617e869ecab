#ifndef SLUICE_COMMON_HTTP_ANSWER_MEMORY_H_
#define SLUICE_COMMON_HTTP_ANSWER_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "common/base/mutex.h"

namespace sluice::http {

// The bytes of all answers that are held in memory: collected, or written and
// not read yet by their clients. While they are more than the limit the client
// that holds the most pays for every further large one: its largest answer is
// cut. While they are not, everybody may hold any number. Any thread.
class AnswerMemory {
 public:
  // What holds bytes: one answer.
  class Holder {
   public:
    explicit Holder(std::string client) : client_(std::move(client)) {}
    virtual ~Holder() = default;
    // Any thread: the answer ends soon, with an error if none of it is out.
    // Called once, under the memory's lock.
    virtual void Cut() = 0;

   protected:
    bool is_cut() const { return cut_; }

   private:
    friend class AnswerMemory;
    const std::string client_;
    std::atomic<long long> bytes_{0};
    std::atomic<bool> cut_{false};
  };

  // Answers up to this size are never cut, and cut nobody.
  static constexpr long long kSmallBytes = 64 << 10;

  explicit AnswerMemory(size_t limit) : limit_(static_cast<long long>(limit)) {}

  void Add(Holder& holder);
  void Remove(Holder& holder);  // with all that it holds

  // `holder` is going to hold `bytes` more, or less. False: it is the answer
  // to be cut; its bytes are counted all the same.
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
