#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_HEARTBEATS_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_HEARTBEATS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace sluice {

// The unanswered heartbeats of one stage and their send times, since the
// sender's clock in a reply is not trusted. A value, one thread.
class Heartbeats {
 public:
  // Older heartbeats are forgotten: 16 s of them.
  static constexpr size_t kMax = 64;

  void Reset() { sent_.clear(); }

  // Sequences must rise.
  void Sent(uint64_t sequence, int64_t now_ns) {
    sent_.push_back({sequence, now_ns});
    if (sent_.size() > kMax) sent_.pop_front();
  }

  // Returns when the heartbeat that a reply names left; nothing if it is not
  // outstanding. Replies come in order, so this settles the earlier ones too.
  std::optional<int64_t> Answered(uint64_t sequence) {
    for (size_t i = 0; i < sent_.size(); ++i) {
      if (sent_[i].sequence != sequence) continue;
      const int64_t sent_ns = sent_[i].sent_ns;
      sent_.erase(sent_.begin(), sent_.begin() + static_cast<ptrdiff_t>(i) + 1);
      return sent_ns;
    }
    return std::nullopt;
  }

 private:
  struct Beat {
    uint64_t sequence = 0;
    int64_t sent_ns = 0;
  };
  std::deque<Beat> sent_;  // oldest first
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_HEARTBEATS_H_
