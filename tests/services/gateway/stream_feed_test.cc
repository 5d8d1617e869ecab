#include "services/gateway/stream_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/http/feed_record.h"
#include "tests/http/fake_exchange.h"

namespace sluice::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

serving::StreamRequest Request(const std::string& id, size_t bytes = 10) {
  serving::StreamRequest request;
  request.request_id = id;
  request.tenant = "alice";
  request.path = "/v1/completions";
  request.body = std::string(bytes, '\xff') + "\n\0\n";
  request.first_event_id = Cat("1~", id);
  return request;
}

serving::StreamJournal::Entry Keep(serving::StreamRequest request) {
  return std::make_shared<const serving::StreamRequest>(std::move(request));
}

std::shared_ptr<http::FakeExchange> Follow(StreamFeed& feed) {
  http::HttpRequest request;
  request.path = kStreamFeedPath;
  auto exchange = std::make_shared<http::FakeExchange>(std::move(request));
  feed.Serve(exchange);
  return exchange;
}

// The ids of the requests in the answer so far.
std::vector<std::string> IdsOf(const http::FakeExchange& exchange) {
  http::FeedReader reader;
  std::vector<std::string> ids;
  for (const std::string& chunk : exchange.chunks) {
    EXPECT_TRUE(reader.Feed(chunk).ok());
    for (std::string record; reader.Next(record);) {
      const auto request = DecodeStreamRequest(record);
      ids.push_back(request.ok() ? request->request_id
                                 : Message(request.status()));
    }
  }
  return ids;
}

TEST(StreamFeedTest, ARequestIsTheSameBehindItsBytes) {
  serving::StreamRequest request = Request("one", 100);
  request.arrival = Clock::now() - std::chrono::seconds(30);
  const auto copy = DecodeStreamRequest(EncodeStreamRequest(request));
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(copy->request_id, request.request_id);
  EXPECT_EQ(copy->tenant, request.tenant);
  EXPECT_EQ(copy->path, request.path);
  EXPECT_EQ(copy->body, request.body);
  EXPECT_EQ(copy->first_event_id, request.first_event_id);
  EXPECT_LE(copy->arrival, Clock::now() - std::chrono::seconds(29));
}

TEST(StreamFeedTest, WhatIsNoRequestIsRefused) {
  serving::StreamRequest elsewhere = Request("one"), nameless = Request("");
  elsewhere.path = "/v1/models";
  for (const std::string& bytes :
       {std::string(), std::string("{}"), std::string("{}\n"),
        std::string("no JSON\nbody"), EncodeStreamRequest(elsewhere),
        EncodeStreamRequest(nameless),
        EncodeStreamRequest(Request(std::string(5000, 'x')))}) {
    EXPECT_THAT(Message(DecodeStreamRequest(bytes).status()),
                HasSubstr("a request of another gateway's streams has"));
  }
}

TEST(StreamFeedTest, AFollowerGetsWhatIsKeptAndWhatComes) {
  StreamFeed* feed = nullptr;
  serving::StreamJournal journal(
      {}, [&](const serving::StreamJournal::Entry&) { feed->OnNew(); });
  StreamFeed made(journal);
  feed = &made;
  journal.Add(Keep(Request("a")));
  journal.Insert(Keep(Request("b")));
  const auto first = Follow(made);
  EXPECT_THAT(IdsOf(*first), ElementsAre("a", "b"));
  journal.Add(Keep(Request("c")));
  journal.Add(Keep(Request("c")));
  const auto second = Follow(made);
  EXPECT_THAT(IdsOf(*first), ElementsAre("a", "b", "c"));
  EXPECT_THAT(IdsOf(*second), ElementsAre("a", "b", "c"));
  first->Leave(http::Gone::kDisconnected);
  EXPECT_EQ(made.followers(), 1u);
  made.EndAll();
  EXPECT_TRUE(second->ended);
  EXPECT_EQ(made.followers(), 0u);
  EXPECT_EQ(Follow(made)->responses[0].status, 503);
}

// Its client reads when the test says so.
class SlowExchange : public http::FakeExchange {
 public:
  using FakeExchange::FakeExchange;
  void WhenRead(std::function<void()> work) override { read = std::move(work); }
  std::function<void()> read;
};

TEST(StreamFeedTest, WhatASlowFollowerHasNotReadIsNotCollected) {
  serving::StreamJournal journal({});
  StreamFeed feed(journal);
  for (int i = 0; i < 10; ++i) {
    journal.Add(Keep(Request(Cat(i), size_t{200} << 10)));
  }
  http::HttpRequest request;
  const auto slow = std::make_shared<SlowExchange>(std::move(request));
  feed.Serve(slow);
  feed.OnNew();
  EXPECT_THAT(IdsOf(*slow), ElementsAre("0"));
  while (slow->read) std::exchange(slow->read, nullptr)();
  EXPECT_EQ(IdsOf(*slow).size(), 10u);
}

TEST(StreamFeedTest, ACopyIsWholeBeforeItEnds) {
  serving::StreamJournal journal({});
  StreamFeed feed(journal);
  for (int i = 0; i < 4; ++i) {
    journal.Add(Keep(Request(Cat(i), size_t{200} << 10)));
  }
  http::HttpRequest request;
  const auto slow = std::make_shared<SlowExchange>(std::move(request));
  feed.Serve(slow);
  feed.Finish();
  EXPECT_FALSE(slow->ended);
  while (slow->read) std::exchange(slow->read, nullptr)();
  EXPECT_EQ(IdsOf(*slow).size(), 4u);
  EXPECT_TRUE(slow->ended);
  const auto late = Follow(feed);
  EXPECT_EQ(IdsOf(*late).size(), 4u);
  EXPECT_TRUE(late->ended);
  EXPECT_EQ(feed.followers(), 0u);
}

TEST(StreamFeedTest, FollowersAreFew) {
  serving::StreamJournal journal({});
  StreamFeed feed(journal);
  std::vector<std::shared_ptr<http::FakeExchange>> followers;
  for (int i = 0; i < 8; ++i) followers.push_back(Follow(feed));
  EXPECT_EQ(Follow(feed)->responses[0].status, 503);
  followers[0]->Leave(http::Gone::kDisconnected);
  EXPECT_EQ(Follow(feed)->responses[0].status, 200);
}

}  // namespace
}  // namespace sluice::gateway
