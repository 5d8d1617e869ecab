#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/tools/eval/checks.h"

namespace sluice::eval {
namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();

ProbeAnswer Answer(std::vector<int64_t> ids, std::vector<double> logprobs) {
  ProbeAnswer answer;
  answer.ids = std::move(ids);
  answer.logprobs = std::move(logprobs);
  return answer;
}

TEST(CompareTest, EqualAnswersAreTheSameAlsoWithoutAFirstLogprob) {
  const ProbeAnswer a = Answer({1, 2, 3}, {kNan, -0.5, -1});
  EXPECT_TRUE(Compare(a, a).Same());
}

TEST(CompareTest, OneBitOfALogprobIsADifference) {
  const ProbeAnswer a = Answer({1, 2}, {kNan, -0.5});
  const ProbeAnswer b = Answer({1, 2}, {kNan, std::nextafter(-0.5, 0)});
  const AnswerDifference found = Compare(a, b);
  EXPECT_TRUE(found.same_ids);
  EXPECT_EQ(found.different_logprobs, 1u);
  EXPECT_FALSE(found.Same());
}

TEST(CompareTest, WhatFollowsTheFirstDifferentIdIsNotCompared) {
  const AnswerDifference found =
      Compare(Answer({1, 2, 3, 4}, {-1, -1, -9, -1}),
              Answer({1, 2, 5, 4}, {-1, -1, -2, -3}));
  EXPECT_FALSE(found.same_ids);
  EXPECT_EQ(found.first_different, 2u);
  EXPECT_EQ(found.logprobs.count, 2u);
  EXPECT_EQ(found.logprobs.max, 0);
  const AnswerDifference shorter =
      Compare(Answer({1, 2}, {-1, -1}), Answer({1}, {-1}));
  EXPECT_FALSE(shorter.Same());
  EXPECT_EQ(shorter.first_different, 1u);
}

TEST(CompareTest, ALogprobThatNeitherGivesIsADifferenceButForTheFirst) {
  const ProbeAnswer a = Answer({1, 2, 3}, {kNan, -1, kNan});
  const AnswerDifference found = Compare(a, a);
  EXPECT_TRUE(found.same_ids);
  EXPECT_EQ(found.different_logprobs, 1u);
  EXPECT_TRUE(std::isinf(found.logprobs.max));
  EXPECT_FALSE(found.Same());
}

TEST(CompareTest, AnswersOfWhichNoValueWasComparedAreNotTheSame) {
  EXPECT_FALSE(Compare(Answer({}, {}), Answer({}, {})).Same());
  const ProbeAnswer one = Answer({1}, {kNan});
  EXPECT_EQ(Compare(one, one).logprobs.count, 0u);
  EXPECT_FALSE(Compare(one, one).Same());
}

TEST(ErrorStatsTest, NotANumberIsNeverClose) {
  ErrorStats stats;
  stats.Add(-0.5);
  EXPECT_EQ(stats.max, 0.5);
  stats.Add(kNan);
  EXPECT_TRUE(std::isinf(stats.max));
  const ProbeAnswer a = Answer({1, 2}, {kNan, kNan});
  EXPECT_FALSE(Compare(a, Answer({1, 2}, {kNan, -1})).Same());
}

}  // namespace
}  // namespace sluice::eval
