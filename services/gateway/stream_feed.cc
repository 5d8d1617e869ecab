#include "services/gateway/stream_feed.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/json.h"
#include "common/base/json_member.h"
#include "common/http/error_answer.h"
#include "common/http/feed_record.h"
#include "services/gateway/dialects.h"

namespace sluice::gateway {
namespace {

using std::chrono::milliseconds;

// Of what is sent at a time; one request may be larger.
constexpr size_t kBatchBytes = size_t{256} << 10;
constexpr size_t kMaxIdBytes = 4096;  // of each id
constexpr size_t kMaxNameBytes = 512;

http::HttpResponse NotNow() {
  return http::ErrorResponse(
      {503, "This gateway gives no copy of its streams now",
       "service_unavailable_error", std::nullopt, "no_leader"});
}

}  // namespace

std::string EncodeStreamRequest(const serving::StreamRequest& request) {
  const auto age =
      std::chrono::duration_cast<milliseconds>(Clock::now() - request.arrival);
  const Json head{{"request_id", request.request_id},
                  {"tenant", request.tenant},
                  {"path", request.path},
                  {"first_event_id", request.first_event_id},
                  {"age_ms", std::max<int64_t>(age.count(), 0)}};
  return DumpJson(head) + "\n" + request.body;
}

StatusOr<serving::StreamRequest> DecodeStreamRequest(std::string_view bytes) {
  const auto bad = [](const char* what) {
    return InvalidArgument("a request of another gateway's streams has ", what);
  };
  const size_t end = bytes.find('\n');
  if (end == bytes.npos) return bad("no head");
  const StatusOr<Json> head = ParseJson(std::string(bytes.substr(0, end)));
  if (!head.ok() || !head->is_object()) return bad("no JSON as its head");
  serving::StreamRequest request;
  request.request_id = FindText(*head, "request_id");
  request.tenant = FindText(*head, "tenant");
  request.path = FindText(*head, "path");
  request.first_event_id = FindText(*head, "first_event_id");
  request.body = bytes.substr(end + 1);
  if (FindEndpoint(request.path) == nullptr) {
    return bad("another path than those of generations");
  }
  if (request.request_id.empty() || request.request_id.size() > kMaxIdBytes ||
      request.tenant.size() > kMaxNameBytes || request.first_event_id.empty() ||
      request.first_event_id.size() > 2 * kMaxIdBytes) {
    return bad("a name that is empty or too long");
  }
  const int64_t age = FindInt(*head, "age_ms").value_or(-1);
  constexpr int64_t kDay = 24 * 3600 * 1000;
  if (age < 0) return bad("no age");
  request.arrival = Clock::now() - milliseconds(std::min(age, kDay));
  return request;
}

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
    const auto batch = journal_.KeptAfter(follower->sent, kBatchBytes);
    if (batch.empty()) return is_last ? End(follower) : void();
    for (const auto& kept : batch) {
      std::string record = EncodeStreamRequest(*kept);
      if (record.size() > http::FeedReader::kMaxRecord) continue;
      bytes += http::FeedRecord(record);
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

}  // namespace sluice::gateway
