#include "common/serving/stream_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/base/cat.h"

namespace sluice::serving {
namespace {

using ::testing::HasSubstr;

StreamRequest Request(const std::string& id, size_t bytes,
                      const std::string& tenant = "") {
  StreamRequest request;
  request.request_id = id;
  request.tenant = tenant;
  request.body = std::string(bytes, 'x');
  request.first_event_id = Cat(id, "~", bytes);
  return request;
}

StreamJournal::Entry Keep(StreamRequest request) {
  return std::make_shared<const StreamRequest>(std::move(request));
}

TEST(StreamJournalTest, TheOldestMakeRoom) {
  StreamJournal journal({size_t{64} << 10, std::chrono::minutes(1)});
  for (int i = 0; i < 20; ++i) journal.Add(Keep(Request(Cat("id-", i), 7000)));
  const StreamJournal::Figures figures = journal.figures();
  EXPECT_EQ(figures.streams, 8u);
  EXPECT_LE(figures.bytes, size_t{64} << 10);
  EXPECT_EQ(figures.crowded_out, 12u);
  EXPECT_FALSE(journal.Find("id-11", "").ok());
  EXPECT_TRUE(journal.Find("id-12", "").ok());
  journal.Add(Keep(Request("large", 9000)));
  EXPECT_EQ(journal.figures().too_large, 1u);
  EXPECT_EQ(journal.figures().streams, 8u);
}

TEST(StreamJournalTest, TheLatestOfOneIdAndKeyStays) {
  StreamJournal journal({});
  journal.Add(Keep(Request("id", 10)));
  journal.Add(Keep(Request("id", 20)));
  journal.Add(Keep(Request("id", 30, "alice")));
  EXPECT_EQ(journal.figures().streams, 2u);
  EXPECT_EQ((*journal.Find("id", ""))->body.size(), 20u);
  EXPECT_EQ((*journal.Find("id", "alice"))->body.size(), 30u);
}

TEST(StreamJournalTest, TheSameRequestAgainIsAsOldAsItsFirst) {
  int told = 0;
  StreamJournal journal({}, [&told](const StreamJournal::Entry&) { ++told; });
  const StreamJournal::Entry first = Keep(Request("id", 10));
  journal.Add(first);
  journal.Add(Keep(Request("id", 10)));
  EXPECT_EQ(*journal.Find("id", ""), first);
  EXPECT_EQ(told, 1);
  journal.Add(Keep(Request("id", 11)));
  EXPECT_EQ((*journal.Find("id", ""))->body.size(), 11u);
  EXPECT_EQ(told, 2);
}

TEST(StreamJournalTest, OneThatIsTooLargeLeavesNoOlderOfItsId) {
  StreamJournal journal({size_t{64} << 10, std::chrono::minutes(1)});
  journal.Add(Keep(Request("id", 10)));
  journal.Add(Keep(Request("id", 9000)));
  EXPECT_FALSE(journal.Find("id", "").ok());
  EXPECT_EQ(journal.figures().bytes, 0u);
}

TEST(StreamJournalTest, AKeyWithMoreThanHalfMakesItsOwnRoom) {
  StreamJournal journal({size_t{64} << 10, std::chrono::minutes(1)});
  journal.Add(Keep(Request("first", 7000, "alice")));
  for (int i = 0; i < 20; ++i) {
    journal.Add(Keep(Request(Cat("id-", i), 7000, "bob")));
  }
  EXPECT_TRUE(journal.Find("first", "alice").ok());
  EXPECT_EQ(journal.figures().streams, 8u);
  EXPECT_FALSE(journal.Find("id-12", "bob").ok());
  EXPECT_TRUE(journal.Find("id-13", "bob").ok());
  // Another key gets its share all the same.
  for (int i = 0; i < 3; ++i) {
    journal.Add(Keep(Request(Cat("new-", i), 7000, "carol")));
  }
  EXPECT_FALSE(journal.Find("first", "alice").ok()) << "now the oldest";
  EXPECT_TRUE(journal.Find("new-0", "carol").ok());
}

TEST(StreamJournalTest, WhatIsTooOldIsGone) {
  StreamJournal journal({size_t{1} << 20, std::chrono::minutes(10)});
  journal.Add(Keep(Request("new", 10)));
  StreamRequest old = Request("old", 10);
  old.arrival -= std::chrono::minutes(11);
  journal.Insert(std::make_shared<const StreamRequest>(old));
  EXPECT_FALSE(journal.Find("old", "").ok()) << "though it came later";
  EXPECT_TRUE(journal.Find("new", "").ok());
  StreamJournal first({size_t{1} << 20, std::chrono::minutes(10)});
  first.Add(Keep(old));
  EXPECT_EQ(first.figures().bytes, 0u);
  StreamJournal brief({size_t{1} << 20, std::chrono::milliseconds(1)});
  const StreamJournal::Entry entry = Keep(Request("id", 10));
  brief.Add(entry);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  brief.DropOld();
  EXPECT_EQ(entry.use_count(), 1) << "memory is free without a look";
}

TEST(StreamJournalTest, WhatIsKeptComesInBatches) {
  StreamJournal journal({size_t{1} << 20, std::chrono::minutes(1)});
  uint64_t after = 0;
  const auto next = [&] {
    std::string ids;
    for (const auto& kept : journal.KeptAfter(after, size_t{8} << 10)) {
      ids += kept->request_id;
    }
    return ids;
  };
  EXPECT_EQ(next(), "");
  journal.Add(Keep(Request("a", 3000)));
  journal.Insert(Keep(Request("b", 3000)));
  journal.Add(Keep(Request("c", 30000)));
  journal.Add(Keep(Request("d", 10)));
  EXPECT_EQ(next(), "ab");
  EXPECT_EQ(next(), "c") << "one, however large";
  EXPECT_EQ(next(), "d");
  EXPECT_EQ(next(), "");
  journal.Add(Keep(Request("a", 3000)));
  EXPECT_EQ(next(), "") << "the same again";
  journal.Add(Keep(Request("a", 3001)));
  EXPECT_EQ(next(), "a");
  after = 0;
  EXPECT_EQ(next(), "b") << "the first a is gone, c is large";
}

TEST(StreamJournalTest, OffItSaysSo) {
  StreamJournal journal({0, std::chrono::minutes(10)});
  journal.Add(Keep(Request("id", 10)));
  EXPECT_EQ(journal.figures().streams, 0u);
  EXPECT_THAT(Message(journal.Find("id", "").status()),
              HasSubstr("--stream-journal-mb 0"));
}

}  // namespace
}  // namespace sluice::serving
