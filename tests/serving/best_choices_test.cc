// The choices that an answer with best_of shows.
#include "common/serving/best_choices.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace sluice::serving {
namespace {

Delta Choice(std::string text, const std::vector<float>& logprobs) {
  Delta choice;
  choice.text = std::move(text);
  for (const float logprob : logprobs) {
    choice.logprobs.push_back({1, TokenLogprob{1, logprob, 0}, {}});
  }
  return choice;
}

std::vector<std::string> TextsOf(const std::vector<Delta>& choices) {
  std::vector<std::string> texts;
  for (const Delta& choice : choices) texts.push_back(choice.text);
  return texts;
}

using Texts = std::vector<std::string>;

TEST(BestChoicesTest, TheMeanPerTokenDecidesAndNotTheSum) {
  const std::vector<Delta> choices = {Choice("short", {-1.0f}),
                                      Choice("long", {-0.5f, -0.5f, -0.5f}),
                                      Choice("unlikely", {-3.0f})};
  EXPECT_EQ(TextsOf(BestChoices(choices, {3, 1})), Texts({"long"}));
  EXPECT_EQ(TextsOf(BestChoices(choices, {3, 2})), Texts({"long", "short"}));
}

TEST(BestChoicesTest, EqualOnesKeepTheirOrderAndAnEmptyOneIsLast) {
  const std::vector<Delta> choices = {Choice("empty", {}), Choice("a", {-1.0f}),
                                      Choice("b", {-1.0f, -1.0f})};
  EXPECT_EQ(TextsOf(BestChoices(choices, {3, 3})), Texts({"a", "b", "empty"}));
}

TEST(BestChoicesTest, EachPromptHasItsOwn) {
  const std::vector<Delta> choices = {
      Choice("a0", {-2.0f}), Choice("a1", {-1.0f}), Choice("b0", {-4.0f}),
      Choice("b1", {-5.0f})};
  EXPECT_EQ(TextsOf(BestChoices(choices, {2, 1})), Texts({"a1", "b0"}));
}

TEST(BestChoicesTest, LogProbabilitiesStayWhereTheyAreShown) {
  for (const bool shows : {false, true}) {
    const auto best = BestChoices({Choice("a", {-1.0f})}, {1, 1, shows});
    EXPECT_EQ(best.at(0).logprobs.size(), shows ? 1u : 0u);
  }
}

}  // namespace
}  // namespace sluice::serving
