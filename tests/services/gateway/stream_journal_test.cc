#include "services/gateway/stream_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "common/base/cat.h"

namespace sluice::gateway {
namespace {

using ::testing::HasSubstr;

StreamRequest Request(const std::string& id, size_t bytes,
                      const std::string& tenant = "") {
  StreamRequest request;
  request.request_id = id;
  request.tenant = tenant;
  request.body = std::string(bytes, 'x');
  return request;
}

TEST(StreamJournalTest, TheOldestMakeRoom) {
  StreamJournal journal({size_t{64} << 10, std::chrono::minutes(1)});
  for (int i = 0; i < 20; ++i) journal.Add(Request(Cat("id-", i), 7000));
  const StreamJournal::Figures figures = journal.figures();
  EXPECT_EQ(figures.streams, 8u);
  EXPECT_LE(figures.bytes, size_t{64} << 10);
  EXPECT_EQ(figures.crowded_out, 12u);
  EXPECT_FALSE(journal.Find("id-11", "").ok());
  EXPECT_TRUE(journal.Find("id-12", "").ok());
  journal.Add(Request("large", 9000));
  EXPECT_EQ(journal.figures().too_large, 1u);
  EXPECT_EQ(journal.figures().streams, 8u);
}

TEST(StreamJournalTest, TheLatestOfOneIdAndKeyStays) {
  StreamJournal journal({});
  journal.Add(Request("id", 10));
  journal.Add(Request("id", 20));
  journal.Add(Request("id", 30, "alice"));
  EXPECT_EQ(journal.figures().streams, 2u);
  EXPECT_EQ((*journal.Find("id", ""))->body.size(), 20u);
  EXPECT_EQ((*journal.Find("id", "alice"))->body.size(), 30u);
}

TEST(StreamJournalTest, WhatIsTooOldIsGone) {
  StreamJournal journal({size_t{1} << 20, std::chrono::minutes(10)});
  journal.Add(Request("new", 10));
  StreamRequest old = Request("old", 10);
  old.arrival -= std::chrono::minutes(11);
  journal.Insert(std::make_shared<const StreamRequest>(old));
  EXPECT_FALSE(journal.Find("old", "").ok()) << "though it came later";
  EXPECT_TRUE(journal.Find("new", "").ok());
  StreamJournal first({size_t{1} << 20, std::chrono::minutes(10)});
  first.Add(old);
  EXPECT_EQ(first.figures().bytes, 0u);
}

TEST(StreamJournalTest, OffItSaysSo) {
  StreamJournal journal({0, std::chrono::minutes(10)});
  journal.Add(Request("id", 10));
  EXPECT_EQ(journal.figures().streams, 0u);
  EXPECT_THAT(Message(journal.Find("id", "").status()),
              HasSubstr("--stream-journal-mb 0"));
}

}  // namespace
}  // namespace sluice::gateway
