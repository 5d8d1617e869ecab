#include "common/standby/feed_record.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::standby {
namespace {

TEST(FeedReaderTest, RecordsComeTogetherFromAnyPieces) {
  const std::string bytes =
      FeedRecord("one") + FeedRecord("") + FeedRecord(std::string(300, 'y'));
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{1000}}) {
    FeedReader reader;
    std::vector<std::string> records;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      ASSERT_TRUE(reader.Feed(bytes.substr(at, piece)).ok());
      for (std::string record; reader.Next(record);) records.push_back(record);
    }
    EXPECT_EQ(records,
              (std::vector<std::string>{"one", "", std::string(300, 'y')}));
  }
  FeedReader reader;
  EXPECT_FALSE(reader.Feed("\xff\xff\xff\xff").ok());
}

}  // namespace
}  // namespace sluice::standby
