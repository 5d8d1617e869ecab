#include "common/base/byte_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ByteSizeTest, LettersArePowersOf1024) {
  EXPECT_EQ(*ParseBytes("7"), 7u);
  EXPECT_EQ(*ParseBytes("96G"), uint64_t{96} << 30);
  EXPECT_EQ(*ParseBytes("1K"), 1024u);
  EXPECT_EQ(*ParseBytes("3M"), uint64_t{3} << 20);
  EXPECT_EQ(*ParseBytes("2T"), uint64_t{2} << 40);
}

TEST(ByteSizeTest, AnythingElseIsRefusedByName) {
  for (const char* text : {"", "0", "0G", "-1", "G", "1g", "1GB", "1 G", "1.5G",
                           "1x", "4611686018427387904", "4194304T"}) {
    const auto size = ParseBytes(text);
    EXPECT_EQ(size.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(Message(size.status()), HasSubstr(text));
  }
}

TEST(ByteSizeTest, AListHasNoEmptyPlaces) {
  EXPECT_THAT(*ParseBytesList("4K,1,2M"), ElementsAre(4096, 1, 2 << 20));
  EXPECT_THAT(*ParseBytesList(""), ElementsAre());
  EXPECT_FALSE(ParseBytesList("1,").ok());
  EXPECT_FALSE(ParseBytesList(",1").ok());
  EXPECT_FALSE(ParseBytesList("1,,2").ok());
}

}  // namespace
}  // namespace sluice
