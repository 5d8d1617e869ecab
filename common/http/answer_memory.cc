#include "common/http/answer_memory.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace sluice::http {

void AnswerMemory::Add(Holder& holder) {
  MutexLock lock(mutex_);
  holders_.insert(&holder);
}

void AnswerMemory::Remove(Holder& holder) {
  MutexLock lock(mutex_);
  holders_.erase(&holder);
  all_ -= holder.bytes_.exchange(0);
}

bool AnswerMemory::Change(Holder& holder, long long bytes) {
  const bool short_before = all_ > limit_;
  all_ += bytes;
  const long long own = holder.bytes_ += bytes;
  if (bytes <= 0 || !short_before || own <= kSmallBytes) return true;
  return MakeRoom(holder);
}

// Cuts the largest answers of the clients that hold the most, until the rest is
// within the limit. Stops where `holder` is the next to cut.
bool AnswerMemory::MakeRoom(Holder& holder) {
  MutexLock lock(mutex_);
  while (!holder.cut_) {
    long long left = 0;
    std::map<std::string_view, long long> held;
    for (const Holder* one : holders_) {
      if (one->cut_) continue;
      left += one->bytes_;
      held[one->client_] += one->bytes_;
    }
    if (left <= limit_) return true;
    const auto heaviest = std::max_element(
        held.begin(), held.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    Holder* largest = nullptr;
    for (Holder* one : holders_) {
      if (one->cut_ || one->client_ != heaviest->first) continue;
      if (largest == nullptr || one->bytes_ > largest->bytes_) largest = one;
    }
    if (largest == nullptr || largest->bytes_ <= kSmallBytes) return true;
    largest->cut_ = true;
    if (largest != &holder) largest->Cut();
  }
  return false;
}

}  // namespace sluice::http
