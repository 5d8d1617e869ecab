// Tokens that may not come, or must: what a constraint of rules allows behind a
// history, alone and beside a grammar.
#include "common/serving/token_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "common/core/token_mask.h"

namespace sluice::serving {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kVocab = 20;

// A grammar that a test tells what to say.
class SaidGrammar : public TokenConstraint {
 public:
  void Advance(std::span<const TokenId> appended,
               std::function<void()> ready) override {
    got.insert(got.end(), appended.begin(), appended.end());
    ready();
  }
  const ConstraintStep* Latest() const override {
    return is_there ? &step : nullptr;
  }

  ConstraintStep step;
  bool is_there = true;
  std::vector<TokenId> got;
};

bool Allows(const ConstraintStep& step, TokenId token) {
  if (!step.forced.empty()) return token == step.forced.front();
  if (!step.mask) return true;
  bool among = false;
  for (const TokenRun& run : step.mask->runs) {
    among = among || (run.begin <= token && token < run.end);
  }
  return among != step.mask->excludes;
}

std::vector<TokenId> AllowedBy(const ConstraintStep& step) {
  std::vector<TokenId> out;
  for (TokenId token = 0; token < kVocab; ++token) {
    if (Allows(step, token)) out.push_back(token);
  }
  return out;
}

std::shared_ptr<RuledConstraint> Held(
    const TokenRules& rules, std::shared_ptr<TokenConstraint> grammar = {}) {
  auto held = std::make_shared<RuledConstraint>(
      std::make_shared<const TokenRules>(rules), std::move(grammar), kVocab);
  held->Advance({}, [] {});
  return held;
}

// Returns what `held` allows behind `token`, too.
std::vector<TokenId> Behind(RuledConstraint& held, TokenId token) {
  bool is_ready = false;
  held.Advance(std::span(&token, 1), [&is_ready] { is_ready = true; });
  EXPECT_TRUE(is_ready);
  EXPECT_TRUE(held.Latest()->status.ok()) << held.Latest()->status;
  return AllowedBy(*held.Latest());
}

TEST(TokenRulesTest, AllowedTokensAloneMayCome) {
  TokenRules rules;
  rules.allowed = {3, 4, 9};
  const auto held = Held(rules);
  EXPECT_THAT(AllowedBy(*held->Latest()), ElementsAre(3, 4, 9));
  EXPECT_THAT(Behind(*held, 4), ElementsAre(3, 4, 9));
  EXPECT_TRUE(Validate(*held->Latest()->mask, kVocab).ok());
}

TEST(TokenRulesTest, ABadWordsLastTokenIsBannedBehindTheOthersAlone) {
  TokenRules rules;
  rules.bad_words = {{5, 6, 7}, {8}};
  const auto held = Held(rules);
  const auto bans = [](const std::vector<TokenId>& allowed) {
    std::vector<TokenId> banned;
    for (TokenId token = 0; token < kVocab; ++token) {
      if (std::find(allowed.begin(), allowed.end(), token) == allowed.end())
        banned.push_back(token);
    }
    return banned;
  };
  EXPECT_THAT(bans(AllowedBy(*held->Latest())), ElementsAre(8));
  EXPECT_THAT(bans(Behind(*held, 5)), ElementsAre(8));
  EXPECT_THAT(bans(Behind(*held, 6)), ElementsAre(7, 8));
  EXPECT_THAT(bans(Behind(*held, 6)), ElementsAre(8));
}

TEST(TokenRulesTest, ReasoningEndsBehindItsBudget) {
  TokenRules rules;
  rules.reasoning_budget = 2;
  rules.reasoning_begin = {1};
  rules.reasoning_end = 2;
  const auto held = Held(rules);
  EXPECT_EQ(Behind(*held, 1).size(), size_t{kVocab});
  EXPECT_EQ(Behind(*held, 5).size(), size_t{kVocab});
  EXPECT_THAT(Behind(*held, 6), ElementsAre(2));
  EXPECT_EQ(Behind(*held, 2).size(), size_t{kVocab});
  EXPECT_EQ(Behind(*held, 1).size(), size_t{kVocab});  // text by then
  EXPECT_EQ(Behind(*held, 5).size(), size_t{kVocab});
  EXPECT_EQ(Behind(*held, 5).size(), size_t{kVocab});
  // It may end by itself, and an answer may have none.
  for (const std::vector<TokenId>& answer :
       {std::vector<TokenId>{1, 5, 2, 5, 5, 5}, {5, 1, 5, 5, 5}}) {
    const auto other = Held(rules);
    for (const TokenId token : answer) {
      EXPECT_EQ(Behind(*other, token).size(), size_t{kVocab});
    }
  }
  rules.begins_in_reasoning = true;
  const auto begun = Held(rules);
  Behind(*begun, 5);
  EXPECT_THAT(Behind(*begun, 6), ElementsAre(2));
}

TEST(TokenRulesTest, TheEndOfReasoningIsNotBanned) {
  TokenRules rules;
  rules.reasoning_budget = 1;
  rules.reasoning_end = 2;
  rules.begins_in_reasoning = true;
  rules.allowed = {5};
  rules.bad_words = {{5, 2}};
  const auto held = Held(rules);
  EXPECT_THAT(Behind(*held, 5), ElementsAre(2));
  EXPECT_THAT(Behind(*held, 2), ElementsAre(5));
}

TEST(TokenRulesTest, AGrammarAllowsWhatBothDo) {
  TokenRules rules;
  rules.allowed = {3, 4, 9};
  rules.bad_words = {{9}};
  auto grammar = std::make_shared<SaidGrammar>();
  grammar->step.mask = TokenMask{{{4, 12}}, false};
  const auto held = Held(rules, grammar);
  EXPECT_THAT(AllowedBy(*held->Latest()), ElementsAre(4));
  grammar->step.mask = TokenMask{{{4, 12}}, true};
  EXPECT_THAT(Behind(*held, 4), ElementsAre(3));
  EXPECT_THAT(grammar->got, ElementsAre(4));
  grammar->step.mask.reset();
  grammar->step.forced = {4, 5};
  EXPECT_THAT(Behind(*held, 3), ElementsAre(4));
  EXPECT_THAT(held->Latest()->forced, IsEmpty());
  grammar->step = {.is_complete = true};
  held->Advance({}, [] {});
  EXPECT_TRUE(held->Latest()->is_complete);
  grammar->step = {.mask = TokenMask{{{9, 12}}, false}};
  held->Advance({}, [] {});
  EXPECT_EQ(held->Latest()->status.code(), StatusCode::kInvalidArgument);
  grammar->is_there = false;
  held->Advance({}, [] {});
  EXPECT_EQ(held->Latest(), nullptr);
  grammar->is_there = true;
  EXPECT_NE(held->Latest(), nullptr);
}

// The law of replay: what may come is a function of the tokens, however they
// were told. No bad word is in an answer, found by a search of its own.
TEST(TokenRulesTest, StepsAreAFunctionOfTheTokens) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    TokenRules rules;
    for (int i = 0; i < 4; ++i) {
      std::vector<TokenId> word(1 + random() % 3);
      for (TokenId& token : word) token = static_cast<TokenId>(random() % 4);
      if (word.size() > 1) rules.bad_words.push_back(word);
    }
    if (random() % 2 == 0) {
      rules.reasoning_budget = 1 + random() % 4;
      rules.reasoning_end = 19;
      rules.begins_in_reasoning = true;
    }
    const auto held = Held(rules);
    std::vector<TokenId> answer;
    for (int i = 0; i < 20; ++i) {
      std::vector<TokenId> allowed;
      for (const TokenId token : AllowedBy(*held->Latest())) {
        if (token < 5 || token == 19) allowed.push_back(token);
      }
      ASSERT_FALSE(allowed.empty());
      answer.push_back(allowed[random() % allowed.size()]);
      Behind(*held, answer.back());
    }
    const auto again = Held(rules);
    for (size_t at = 0; at < answer.size();) {
      const size_t count = std::min(answer.size() - at, 1 + random() % 5);
      again->Advance(std::span(answer).subspan(at, count), [] {});
      at += count;
    }
    EXPECT_EQ(AllowedBy(*again->Latest()), AllowedBy(*held->Latest()));
    for (const auto& word : rules.bad_words) {
      EXPECT_EQ(
          std::search(answer.begin(), answer.end(), word.begin(), word.end()),
          answer.end());
    }
  }
}

}  // namespace
}  // namespace sluice::serving
