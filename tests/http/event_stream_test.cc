#include "common/http/event_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/http/fake_exchange.h"

namespace sluice::http {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kPing[] = ": ping\n\n";

struct Opened {
  explicit Opened(const EventStreamTimes& times)
      : exchange(Post("/", "")),
        stream(std::make_shared<EventStream>(exchange, times)) {}
  std::shared_ptr<FakeExchange> exchange;
  std::shared_ptr<EventStream> stream;
};

TEST(EventStreamTest, TheHeaderGoesOutOnce) {
  Opened on({});
  EXPECT_FALSE(on.stream->is_open());
  on.stream->Open();
  on.stream->Open();
  on.stream->Send("{}");
  on.stream->Send("1", "7", "last");
  on.stream->End();
  EXPECT_EQ(on.exchange->responses.size(), 1u);
  EXPECT_THAT(on.exchange->chunks,
              ElementsAre("data: {}\n\n", "event: last\ndata: 1\nid: 7\n\n"));
  EXPECT_TRUE(on.exchange->ended);
}

TEST(EventStreamTest, TheHeaderComesByItselfWhenTheWaitIsOver) {
  Opened on({.head_after = seconds(10)});
  on.stream->Await();
  EXPECT_LE(on.exchange->later_delay, seconds(10));
  EXPECT_GT(on.exchange->later_delay, seconds(0));
  EXPECT_FALSE(on.exchange->streaming);
  ASSERT_TRUE(on.exchange->RunLater());
  EXPECT_TRUE(on.exchange->streaming);
  EXPECT_THAT(on.exchange->chunks, IsEmpty());
}

TEST(EventStreamTest, TheWaitIsCountedFromTheRequestsArrival) {
  Opened on({.head_after = seconds(10)});
  on.exchange->request().arrival = Clock::now() - hours(1);
  on.stream->Await();
  EXPECT_EQ(on.exchange->later_delay, Duration::zero());
}

TEST(EventStreamTest, SilenceIsBrokenByACommentAgainAndAgain) {
  Opened on({.ping_interval = nanoseconds(1)});
  on.stream->Open();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(on.exchange->RunLater());
  EXPECT_THAT(on.exchange->chunks, ElementsAre(kPing, kPing, kPing));
}

TEST(EventStreamTest, WhileEventsComeThereIsNoComment) {
  Opened on({.ping_interval = hours(1)});
  on.stream->Open();
  EXPECT_EQ(on.exchange->later_delay, hours(1));
  on.stream->Send("{}");
  ASSERT_TRUE(on.exchange->RunLater());
  EXPECT_THAT(on.exchange->chunks, ElementsAre("data: {}\n\n"));
  EXPECT_LT(on.exchange->later_delay, hours(1)) << "what is left of it";
  EXPECT_GT(on.exchange->later_delay, std::chrono::minutes(59));
  EXPECT_TRUE(on.exchange->has_later());
}

TEST(EventStreamTest, AnIntervalOfZeroOrLessMeansNoComments) {
  for (const Duration interval : {Duration::zero(), Duration(-1)}) {
    Opened on({.ping_interval = interval});
    on.stream->Await();
    on.stream->Open();
    on.exchange->RunLater();
    EXPECT_FALSE(on.exchange->has_later());
    EXPECT_THAT(on.exchange->chunks, IsEmpty());
  }
}

TEST(EventStreamTest, WhatIsAnsweredOtherwiseNeverOpens) {
  Opened on({});
  on.stream->Await();
  on.exchange->Send({});
  EXPECT_FALSE(on.exchange->RunLater());
}

TEST(EventStreamTest, AWaitKeepsNothingAlive) {
  Opened on({});
  on.stream->Await();
  on.stream = nullptr;
  EXPECT_EQ(on.exchange.use_count(), 1);
  EXPECT_TRUE(on.exchange->RunLater());
  EXPECT_FALSE(on.exchange->streaming);
}

}  // namespace
}  // namespace sluice::http
