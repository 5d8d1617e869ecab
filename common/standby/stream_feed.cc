#include "common/standby/stream_feed.h"

#include <utility>

#include "common/http/error_answer.h"
#include "common/standby/feed_record.h"

namespace sluice::standby {
namespace {

// Of what is sent at a time; one record may be larger.
constexpr size_t kBatchBytes = size_t{256} << 10;

http::HttpResponse NotNow() {
  return http::ErrorResponse(
      {503, "This gateway gives no copy of its streams now",
       "service_unavailable_error", std::nullopt, "no_leader"});
}

}  // namespace

void StreamFeed::Serve(std::shared_ptr<http::Exchange> exchange) {
  exchange->set_route(kStreamFeedPath);
  const auto follower = std::make_shared<Follower>(std::move(exchange));
  http::Exchange& on = *follower->exchange;
  {
    MutexLock lock(mutex_);
    if (ended_ || followers_.size() >= kMostFollowers) return on.Send(NotNow());
    followers_.push_back(follower);
  }
  on.OnGone([this, weak = follower->weak_from_this()](http::Gone) {
    if (const auto left = weak.lock()) {
      left->is_over = true;
      Leave(left.get());
    }
  });
  http::HttpResponse head;
  head.content_type = "application/octet-stream";
  on.BeginStream(std::move(head));
  Pump(follower);
}

void StreamFeed::Pump(const std::shared_ptr<Follower>& follower) {
  http::Exchange& on = *follower->exchange;
  while (!follower->is_over && follower->is_read) {
    // Before the look: what comes behind it is not of this copy.
    const bool is_last = finishes();
    std::string bytes;
    const auto batch = records_(follower->sent, kBatchBytes);
    if (batch.empty()) return is_last ? End(follower) : void();
    for (const std::string& record : batch) {
      if (record.size() > FeedReader::kMaxRecord) continue;
      bytes += FeedRecord(record);
    }
    if (bytes.empty()) continue;
    follower->is_read = false;
    on.SendChunk(std::move(bytes));
    // The exchange keeps this, and must not keep itself by it.
    on.WhenRead([this, weak = follower->weak_from_this()] {
      const auto reader = weak.lock();
      if (reader == nullptr) return;
      reader->is_read = true;
      Pump(reader);
    });
  }
}

void StreamFeed::OnNew() {
  for (const auto& follower : All()) {
    follower->exchange->Post([this, follower] { Pump(follower); });
  }
}

void StreamFeed::Finish() {
  {
    MutexLock lock(mutex_);
    finishes_ = true;
  }
  OnNew();
}

bool StreamFeed::finishes() {
  MutexLock lock(mutex_);
  return finishes_;
}

void StreamFeed::End(const std::shared_ptr<Follower>& follower) {
  if (std::exchange(follower->is_over, true)) return;
  follower->exchange->EndStream();
  Leave(follower.get());
}

void StreamFeed::EndAll() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
  }
  for (const auto& follower : All()) {
    follower->exchange->Post([this, follower] { End(follower); });
  }
}

size_t StreamFeed::followers() {
  MutexLock lock(mutex_);
  return followers_.size();
}

std::vector<std::shared_ptr<StreamFeed::Follower>> StreamFeed::All() {
  MutexLock lock(mutex_);
  return followers_;
}

void StreamFeed::Leave(const Follower* follower) {
  MutexLock lock(mutex_);
  std::erase_if(followers_,
                [follower](const auto& one) { return one.get() == follower; });
}

}  // namespace sluice::standby
