#ifndef SLUICE_SERVICES_GATEWAY_STREAM_FEED_H_
#define SLUICE_SERVICES_GATEWAY_STREAM_FEED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/http/exchange.h"
#include "common/serving/stream_journal.h"

namespace sluice::gateway {

// For gateways that stand by: the path of the requests that a leader keeps.
inline constexpr std::string_view kStreamFeedPath = "/peer/streams";

// A kept request as bytes. Its age goes along: clocks of machines differ.
std::string EncodeStreamRequest(const serving::StreamRequest& request);
// INVALID_ARGUMENT for bytes that are none.
StatusOr<serving::StreamRequest> DecodeStreamRequest(std::string_view bytes);

// Copies a journal to other gateways: to each what is kept, and then what comes
// new, as an answer without an end. Any thread, but for Serve. The journal
// outlives it.
class StreamFeed {
 public:
  explicit StreamFeed(serving::StreamJournal& journal) : journal_(journal) {}

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

  serving::StreamJournal& journal_;
  Mutex mutex_;
  std::vector<std::shared_ptr<Follower>> followers_ ABSL_GUARDED_BY(mutex_);
  bool finishes_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_STREAM_FEED_H_
