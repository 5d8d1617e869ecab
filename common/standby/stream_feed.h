#ifndef SLUICE_COMMON_STANDBY_STREAM_FEED_H_
#define SLUICE_COMMON_STANDBY_STREAM_FEED_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/http/exchange.h"

namespace sluice::standby {

// For gateways that stand by: the path of the streams that a leader keeps.
inline constexpr std::string_view kStreamFeedPath = "/peer/streams";

// Copies the records of a journal to other gateways: to each gateway the
// records that are kept, and then new records as they come, in an answer
// without an end. Any thread, but for Serve. The journal outlives it.
class StreamFeed {
 public:
  // Returns the records that were kept after the first `after` ones, in that
  // order: one, and more up to `bytes` of them together; no record: all were
  // returned. Sets `after` for the next call. Any thread.
  using Records =
      std::function<std::vector<std::string>(uint64_t& after, size_t bytes)>;

  explicit StreamFeed(Records records) : records_(std::move(records)) {}

  // Answers a gateway; 503 if too many are there, or after EndAll. On the
  // exchange's loop.
  void Serve(std::shared_ptr<http::Exchange> exchange);
  // The journal has something new.
  void OnNew();
  // Ends each answer once it has all that is kept now; also those that come.
  void Finish();
  // Ends all answers, and refuses more.
  void EndAll();
  size_t followers();

 private:
  // Gateways at a time.
  static constexpr size_t kMostFollowers = 8;

  // One answer, on its exchange's loop.
  struct Follower : std::enable_shared_from_this<Follower> {
    explicit Follower(std::shared_ptr<http::Exchange> on)
        : exchange(std::move(on)) {}
    const std::shared_ptr<http::Exchange> exchange;
    uint64_t sent = 0;    // up to this number of the journal
    bool is_read = true;  // most of what was sent
    bool is_over = false;
  };

  void Pump(const std::shared_ptr<Follower>& follower);
  void End(const std::shared_ptr<Follower>& follower);
  void Leave(const Follower* follower);
  bool finishes();
  std::vector<std::shared_ptr<Follower>> All();

  const Records records_;
  Mutex mutex_;
  std::vector<std::shared_ptr<Follower>> followers_ ABSL_GUARDED_BY(mutex_);
  bool finishes_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_STREAM_FEED_H_
