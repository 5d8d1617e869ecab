// Every family's golden model under the gateway's scheduler: a last stage that
// is lost in mid-answer changes no bit. tests/integration/families_test.py
// kills processes.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "tests/model/expect_same.h"
#include "tests/model/golden_families.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/model/scheduler_driver.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/representative.h"

namespace sluice::testing {
namespace {

// Answers to the golden's prompts, greedy and drawn in turn.
std::vector<Ask> AsksOf(const Family& family) {
  const auto goldens = ReadGolden(GoldenModel(family.name));
  std::vector<Ask> asks;
  for (size_t i = family.first; i < family.last; ++i) {
    Ask ask;
    ask.prompt = goldens[i].ids;
    ask.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    ask.sampling.seed = 11 + i;
    ask.sampling.logprobs = 2;
    ask.max_tokens = 12;
    asks.push_back(ask);
  }
  return asks;
}

class FamilyRecoveryTest : public ::testing::TestWithParam<Family> {};

TEST_P(FamilyRecoveryTest, ALostStageChangesNoBit) {
  if (OnlyRepresentative()) GTEST_SKIP() << "nothing here has a second thread";
  auto pipeline = Pipeline::Load(GetParam().Cut(2));
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  const std::vector<Ask> asks = AsksOf(GetParam());
  const std::vector<Answer> wanted =
      (*pipeline)->Generate(asks, {.max_running = 1});
  EngineOptions options;
  options.prefill_chunk = 24;
  options.recovery_timeout = std::chrono::hours(1);
  const PlanLimits limits = (*pipeline)->stage(0).info().limits;
  SchedulerDriver run(**pipeline, options,
                      {limits.num_blocks, limits.num_state_blocks});
  for (const Ask& ask : asks) run.Add(ask);
  // Among the prompts' chunks, and among the answers.
  for (const int steps : {2, 8}) {
    EXPECT_TRUE(run.Go(steps));
    run.LoseLast();
  }
  EXPECT_FALSE(run.Go(10'000));
  ExpectSame(run.answers(), wanted);
  EXPECT_GT(run.counters().replayed_tokens, 0u);
}

INSTANTIATE_TEST_SUITE_P(First, FamilyRecoveryTest,
                         ::testing::ValuesIn(FirstGoldenFamilies()),
                         [](const auto& tested) {
                           return tested.param.Name();
                         });

INSTANTIATE_TEST_SUITE_P(Goldens, FamilyRecoveryTest,
                         ::testing::ValuesIn(GoldenFamilies()),
                         [](const auto& tested) {
                           return tested.param.Name();
                         });

}  // namespace
}  // namespace sluice::testing
