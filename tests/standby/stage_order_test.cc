#include "common/standby/stage_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::standby {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Stages = std::vector<std::string>;

Status Compare(const Stages& own, const Stages& peers) {
  return CheckStagesAnswer(AnswerToStages(JoinedStages(own), peers), own);
}

TEST(StageOrderTest, TheSameStagesInTheSameOrderFit) {
  EXPECT_TRUE(Compare({"a:1"}, {"a:1"}).ok());
  EXPECT_TRUE(Compare({"a:1", "unix:/run/b"}, {"a:1", "unix:/run/b"}).ok());
  EXPECT_TRUE(CheckStagesAnswer("", {"a:1"}).ok()) << "an older gateway";
}

TEST(StageOrderTest, AnotherOrderIsRefusedWithBoth) {
  const Status refused = Compare({"a:1", "b:1", "c:1"}, {"b:1", "a:1", "c:1"});
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused), AllOf(HasSubstr("are b:1,a:1,c:1"),
                                      HasSubstr("gateway's a:1,b:1,c:1")));
}

TEST(StageOrderTest, OtherStagesAreToldOfAndNotNamed) {
  for (const Stages& peers : {Stages{"a:1"}, Stages{"a:1", "x:1"},
                              Stages{"a:1", "a:1"}, Stages{"b:1,a:1"}}) {
    const Status told = Compare({"a:1", "b:1"}, peers);
    EXPECT_EQ(told.code(), StatusCode::kNotFound) << JoinedStages(peers);
  }
  EXPECT_EQ(AnswerToStages("", {"a:1"}), "others");
  EXPECT_EQ(AnswerToStages(",", {"a:1"}), "others");
}

}  // namespace
}  // namespace sluice::standby
