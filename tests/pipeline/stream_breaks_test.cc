#include "common/pipeline/gateway/stream_breaks.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr Duration kShort = std::chrono::seconds(1);

TEST(StreamBreaksTest, BreaksInARowCountByStageAndPeer) {
  StreamBreaks breaks;
  EXPECT_FALSE(breaks.Add("a:1", "", kShort));
  EXPECT_FALSE(breaks.Add("a:1", "b:1", kShort));
  EXPECT_FALSE(breaks.Add("b:1", "a:1", kShort));
  EXPECT_TRUE(breaks.Add("a:1", "b:1", kShort));
  EXPECT_TRUE(breaks.Add("a:1", "", kShort));
}

TEST(StreamBreaksTest, AWelcomeOrALongPipelineBeginsAnew) {
  StreamBreaks breaks;
  EXPECT_FALSE(breaks.Add("a:1", "", kShort));
  EXPECT_FALSE(breaks.Add("a:1", "", kShortPipeline));
  EXPECT_TRUE(breaks.Add("a:1", "", kShort));
  breaks.Forget("a:1");
  EXPECT_FALSE(breaks.Add("a:1", "", kShort));
}

}  // namespace
}  // namespace sluice
