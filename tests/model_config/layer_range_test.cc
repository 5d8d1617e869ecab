#include "common/model_config/layer_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LayerRangesTest, TextAndRangesSayTheSame) {
  const auto one = ParseLayerRanges("3-3");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(*one, ElementsAre(LayerRange{3, 4}));
  const auto three = ParseLayerRanges("0-7,8-8,9-29");
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_THAT(*three, ElementsAre(LayerRange{0, 8}, LayerRange{8, 9},
                                  LayerRange{9, 30}));
  EXPECT_EQ(ToText(*three), "0-7,8-8,9-29");
}

TEST(LayerRangesTest, OtherTextIsToldWithItsRange) {
  for (const char* text : {"", "7", "-", "1-", "-1-4", "3-2", "0-7;8-9", "0-7,",
                           "a-b", "0-2147483647", "0-99999999999", "0 -7"}) {
    EXPECT_THAT(Message(ParseLayerRanges(text).status()),
                HasSubstr("must be first-last, got '"))
        << text;
  }
  EXPECT_EQ(Message(ParseLayerRanges("0-7,9-29").status()),
            "'9-29' must begin at 8, behind the range before it");
  EXPECT_EQ(Message(ParseLayerRanges("0-7,7-29").status()),
            "'7-29' must begin at 8, behind the range before it");
}

}  // namespace
}  // namespace sluice
