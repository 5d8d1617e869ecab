#include "common/http/answer_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace sluice::http {
namespace {

constexpr long long kMiB = 1 << 20;

class FakeAnswer : public AnswerMemory::Holder {
 public:
  FakeAnswer(AnswerMemory& memory, std::string client)
      : Holder(std::move(client)), memory_(memory) {
    memory_.Add(*this);
  }
  ~FakeAnswer() override { memory_.Remove(*this); }
  void Cut() override { ++cuts_; }
  bool Grow(long long bytes) { return memory_.Change(*this, bytes); }
  int cuts() const { return cuts_; }

 private:
  AnswerMemory& memory_;
  int cuts_ = 0;
};

TEST(AnswerMemoryTest, WhileThereIsEnoughNobodyIsCut) {
  AnswerMemory memory(100 * kMiB);
  FakeAnswer one(memory, "a"), two(memory, "b");
  EXPECT_TRUE(one.Grow(99 * kMiB));
  EXPECT_TRUE(two.Grow(10 * kMiB)) << "it was not short before";
  EXPECT_EQ(one.cuts() + two.cuts(), 0);
  EXPECT_EQ(memory.bytes(), 109 * kMiB);
}

TEST(AnswerMemoryTest, TheLargestOfTheClientWithTheMostIsCutFirst) {
  AnswerMemory memory(11 * kMiB);
  FakeAnswer small(memory, "many"), large(memory, "many"), mean(memory, "many");
  FakeAnswer other(memory, "other");
  EXPECT_TRUE(small.Grow(2 * kMiB));
  EXPECT_TRUE(mean.Grow(3 * kMiB));
  EXPECT_TRUE(other.Grow(5 * kMiB)) << "the largest answer of all";
  EXPECT_TRUE(large.Grow(4 * kMiB));
  // Over by 3 MiB: nobody is cut before somebody wants more.
  EXPECT_EQ(large.cuts(), 0);
  EXPECT_TRUE(other.Grow(kMiB));
  EXPECT_EQ(large.cuts(), 1);
  EXPECT_EQ(other.cuts() + small.cuts() + mean.cuts(), 0);
}

TEST(AnswerMemoryTest, WhoseTurnItIsIsToldItself) {
  AnswerMemory memory(10 * kMiB);
  FakeAnswer greedy(memory, "a"), other(memory, "b");
  EXPECT_TRUE(other.Grow(kMiB));
  EXPECT_TRUE(greedy.Grow(10 * kMiB));
  EXPECT_FALSE(greedy.Grow(kMiB));
  EXPECT_FALSE(greedy.Grow(kMiB)) << "once cut, always cut";
  EXPECT_EQ(greedy.cuts(), 0);
  EXPECT_TRUE(other.Grow(kMiB));
}

TEST(AnswerMemoryTest, SmallAnswersAreNoBurden) {
  AnswerMemory memory(kMiB);
  FakeAnswer large(memory, "a"), small(memory, "a");
  EXPECT_TRUE(large.Grow(2 * kMiB));
  EXPECT_TRUE(small.Grow(AnswerMemory::kSmallBytes));
  EXPECT_EQ(large.cuts(), 0);
  EXPECT_TRUE(small.Grow(1));
  EXPECT_EQ(large.cuts(), 1);
}

TEST(AnswerMemoryTest, WhatIsOverIsCountedNoMore) {
  AnswerMemory memory(kMiB);
  {
    FakeAnswer answer(memory, "a");
    EXPECT_TRUE(answer.Grow(3 * kMiB));
  }
  EXPECT_EQ(memory.bytes(), 0);
}

}  // namespace
}  // namespace sluice::http
