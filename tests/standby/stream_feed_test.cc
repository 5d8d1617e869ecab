#include "common/standby/stream_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/standby/feed_record.h"
#include "tests/http/fake_exchange.h"

namespace sluice::standby {
namespace {

using ::testing::ElementsAre;

// Records as a journal gives them.
class Kept {
 public:
  void Add(const std::string& id, size_t bytes = 10) {
    records_.push_back(Cat(id, ":", std::string(bytes, '\xff')));
  }
  StreamFeed::Records source() {
    return [this](uint64_t& after, size_t bytes) {
      std::vector<std::string> next;
      for (; after < records_.size(); ++after) {
        const std::string& record = records_[after];
        if (!next.empty() && record.size() > bytes) break;
        bytes -= std::min(record.size(), bytes);
        next.push_back(record);
      }
      return next;
    };
  }

 private:
  std::vector<std::string> records_;
};

std::shared_ptr<http::FakeExchange> Follow(StreamFeed& feed) {
  http::HttpRequest request;
  request.path = kStreamFeedPath;
  auto exchange = std::make_shared<http::FakeExchange>(std::move(request));
  feed.Serve(exchange);
  return exchange;
}

// The ids of the records in the answer so far.
std::vector<std::string> IdsOf(const http::FakeExchange& exchange) {
  FeedReader reader;
  std::vector<std::string> ids;
  for (const std::string& chunk : exchange.chunks) {
    EXPECT_TRUE(reader.Feed(chunk).ok());
    for (std::string record; reader.Next(record);) {
      ids.push_back(record.substr(0, record.find(':')));
    }
  }
  return ids;
}

TEST(StreamFeedTest, AFollowerGetsWhatIsKeptAndWhatComes) {
  Kept kept;
  StreamFeed made(kept.source());
  kept.Add("a");
  kept.Add("b");
  const auto first = Follow(made);
  EXPECT_THAT(IdsOf(*first), ElementsAre("a", "b"));
  kept.Add("c");
  made.OnNew();
  made.OnNew();
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
  Kept kept;
  StreamFeed feed(kept.source());
  for (int i = 0; i < 10; ++i) kept.Add(Cat(i), size_t{200} << 10);
  http::HttpRequest request;
  const auto slow = std::make_shared<SlowExchange>(std::move(request));
  feed.Serve(slow);
  feed.OnNew();
  EXPECT_THAT(IdsOf(*slow), ElementsAre("0"));
  while (slow->read) std::exchange(slow->read, nullptr)();
  EXPECT_EQ(IdsOf(*slow).size(), 10u);
}

TEST(StreamFeedTest, ACopyIsWholeBeforeItEnds) {
  Kept kept;
  StreamFeed feed(kept.source());
  for (int i = 0; i < 4; ++i) kept.Add(Cat(i), size_t{200} << 10);
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
  Kept kept;
  StreamFeed feed(kept.source());
  std::vector<std::shared_ptr<http::FakeExchange>> followers;
  for (int i = 0; i < 8; ++i) followers.push_back(Follow(feed));
  EXPECT_EQ(Follow(feed)->responses[0].status, 503);
  followers[0]->Leave(http::Gone::kDisconnected);
  EXPECT_EQ(Follow(feed)->responses[0].status, 200);
}

}  // namespace
}  // namespace sluice::standby
