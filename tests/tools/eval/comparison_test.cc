#include "common/tools/eval/comparison.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/tools/eval/chain_endpoint.h"

namespace sluice::eval {
namespace {

constexpr Chain kPlain{0};
constexpr Chain kOther{0.4};

std::vector<ReferencePrompt> Prompts(size_t top) {
  return {ChainPrompt(kPlain, "short", {1, 5, 2}, 6, top),
          ChainPrompt(kPlain, "long", {3, 0, 7, 7, 4, 6, 1, 2, 5}, 8, top)};
}

StatusOr<Comparison> CompareOn(const Chain& chain, int64_t context,
                               const std::vector<ReferencePrompt>& prompts) {
  const ChainEndpoint endpoint(chain, context);
  return CompareWithReference(EvalApi(endpoint.url(), "chain"), prompts, {});
}

// The divergence of kOther from kPlain behind `last`, over all ids.
double WholeDivergence(int64_t last) {
  const auto p = kPlain.Row(last), q = kOther.Row(last);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

TEST(ComparisonTest, TheModelOfTheReferenceHasNoErrors) {
  const auto found = CompareOn(kPlain, 100, Prompts(4));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_LT(found->Logprobs().max, 1e-12);
  EXPECT_EQ(found->Greedy(), 14u);
  EXPECT_EQ(found->GreedySame(), 14u);
  EXPECT_EQ(found->SameTop(), 1);
  // A position of prompt or answer has a divergence, but for the first.
  ASSERT_EQ(found->SortedDivergences().size(), 8u + 16u);
  EXPECT_LT(found->SortedDivergences().back(), 1e-12);
  EXPECT_NEAR(found->Perplexity(), found->ReferencePerplexity(), 1e-9);
  EXPECT_GT(found->Perplexity(), 1);
  const CheckResult result = ReferenceResult(*found, {});
  EXPECT_TRUE(result.passed) << result.summary;
  EXPECT_NE(result.body.find("of which 100 %"), std::string::npos)
      << result.body;
}

TEST(ComparisonTest, DivergencesOfWholeListsAreThoseOfAllIds) {
  const auto found = CompareOn(kOther, 100, Prompts(Chain::kVocabulary));
  ASSERT_TRUE(found.ok()) << found.status();
  const std::vector<PositionError>& positions = found->prompts[0].positions;
  std::vector<int64_t> ids = {1, 5, 2};
  ASSERT_EQ(positions.size(), 8u);
  EXPECT_EQ(positions[0].position, 1u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(positions[i].divergence, WholeDivergence(ids[i]), 1e-9);
    const auto next = static_cast<size_t>(ids[i + 1]);
    EXPECT_NEAR(positions[i].logprob,
                kOther.Row(ids[i])[next] - kPlain.Row(ids[i])[next], 1e-12);
  }
  EXPECT_FALSE(ReferenceResult(*found, {}).passed);
  EXPECT_NE(found->Perplexity(), found->ReferencePerplexity());
}

TEST(ComparisonTest, ShortListsBoundTheDivergenceFromBelow) {
  const auto found = CompareOn(kOther, 100, Prompts(3));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_GT(found->prompts[0].positions[0].divergence, 0);
  EXPECT_LT(found->prompts[0].positions[0].divergence, WholeDivergence(1));
}

TEST(ComparisonTest, AnAnswerPartsAtItsFirstOtherId) {
  auto prompts = Prompts(4);
  prompts[1].greedy_ids[3] = (prompts[1].greedy_ids[3] + 1) % 8;
  prompts[1].gaps[3] = 2;
  const auto found = CompareOn(kPlain, 100, prompts);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->prompts[1].greedy_same, 3u);
  EXPECT_FALSE(found->prompts[1].greedy_passed);
  const CheckResult result = ReferenceResult(*found, {});
  EXPECT_NE(result.body.find("3 of 8, parts at 3, gap 2.0e+00"),
            std::string::npos)
      << result.body;
}

TEST(ComparisonTest, APromptThatIsLongerThanTheContextIsLeftOut) {
  const auto found = CompareOn(kPlain, 10, Prompts(4));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->LeftOut(), 1u);
  EXPECT_EQ(found->Greedy(), 6u);
  const CheckResult result = ReferenceResult(*found, {});
  EXPECT_TRUE(result.passed);
  EXPECT_NE(result.summary.find("left out: 1 of 2 prompts"), std::string::npos);
  EXPECT_NE(result.body.find("17 tokens with the answer, the endpoint's "
                             "context has 10"),
            std::string::npos)
      << result.body;
}

TEST(ComparisonTest, WhereNothingIsLeftNothingIsPassed) {
  const auto found = CompareOn(kPlain, 4, Prompts(4));
  EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(found.status()).find("context of 4"), std::string::npos);
}

TEST(ComparisonTest, AnErrorOfTheObserverEndsIt) {
  const ChainEndpoint endpoint(kPlain, 100);
  std::vector<std::string> asked;
  const auto found = CompareWithReference(
      EvalApi(endpoint.url(), "chain"), Prompts(4), {},
      [&](const std::string& name) {
        asked.push_back(name);
        return name == "long" ? Cancelled("enough") : OkStatus();
      });
  EXPECT_EQ(found.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(asked, (std::vector<std::string>{"short", "long"}));
}

TEST(TopDivergenceTest, IdsThatOneSideDoesNotNameAreOneOutcome) {
  const double half = std::log(0.5), quarter = std::log(0.25);
  EXPECT_EQ(TopDivergence({{1, half}}, {{1, half}}), 0);
  // 0.5 and 0.5 against 0.25 and 0.75.
  EXPECT_NEAR(TopDivergence({{1, half}, {2, quarter}}, {{1, quarter}}),
              0.5 * std::log(2.0) + 0.5 * std::log(0.5 / 0.75), 1e-12);
  // No id in common: all of it is one outcome.
  EXPECT_EQ(TopDivergence({{1, half}}, {{2, half}}), 0);
}

}  // namespace
}  // namespace sluice::eval
