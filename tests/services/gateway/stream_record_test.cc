#include "services/gateway/stream_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/standby/feed_record.h"
#include "common/standby/stream_feed.h"
#include "tests/http/fake_exchange.h"

namespace sluice::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

serving::StreamRequest StreamOf(const std::string& id, size_t bytes = 10) {
  serving::StreamRequest request;
  request.request_id = id;
  request.tenant = "alice";
  request.path = "/v1/completions";
  request.body = std::string(bytes, '\xff') + "\n\0\n";
  request.first_event_id = Cat("1~", id);
  return request;
}

serving::StreamJournal::Entry EntryOf(serving::StreamRequest request) {
  return std::make_shared<const serving::StreamRequest>(std::move(request));
}

TEST(StreamRecordTest, ARequestIsTheSameBehindItsBytes) {
  serving::StreamRequest request = StreamOf("one", 100);
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

TEST(StreamRecordTest, WhatIsNoRequestIsRefused) {
  serving::StreamRequest elsewhere = StreamOf("one"), nameless = StreamOf("");
  elsewhere.path = "/v1/models";
  for (const std::string& bytes :
       {std::string(), std::string("{}"), std::string("{}\n"),
        std::string("no JSON\nbody"), EncodeStreamRequest(elsewhere),
        EncodeStreamRequest(nameless),
        EncodeStreamRequest(StreamOf(std::string(5000, 'x')))}) {
    EXPECT_THAT(Message(DecodeStreamRequest(bytes).status()),
                HasSubstr("a request of another gateway's streams has"));
  }
}

// The ids of the requests in another gateway's copy so far.
std::vector<std::string> IdsOf(const http::FakeExchange& exchange) {
  standby::FeedReader reader;
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

TEST(StreamRecordTest, AnotherGatewayGetsEachRequestOfTheJournalOnce) {
  standby::StreamFeed* feed = nullptr;
  serving::StreamJournal journal(
      {}, [&](const serving::StreamJournal::Entry&) { feed->OnNew(); });
  standby::StreamFeed made([&](uint64_t& after, size_t bytes) {
    return RecordsAfter(journal, after, bytes);
  });
  feed = &made;
  journal.Add(EntryOf(StreamOf("a")));
  journal.Insert(EntryOf(StreamOf("b")));
  const auto copy = std::make_shared<http::FakeExchange>(http::HttpRequest());
  made.Serve(copy);
  EXPECT_THAT(IdsOf(*copy), ElementsAre("a", "b"));
  journal.Add(EntryOf(StreamOf("c")));
  journal.Add(EntryOf(StreamOf("c")));
  EXPECT_THAT(IdsOf(*copy), ElementsAre("a", "b", "c"));
}

}  // namespace
}  // namespace sluice::gateway
