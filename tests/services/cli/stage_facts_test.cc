#include "services/cli/stage_facts.h"

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

TEST(StageFactsTest, APageTellsLayersAndWhereTimeGoes) {
  const auto stages = StagesOf(Json::parse(R"({"stages": [
      {"address": "a:1", "state": "ready", "first_layer": 0, "last_layer": 15,
       "steps_done": 10, "busy_ms": 30},
      {"address": "b:1", "state": "lost", "first_layer": 15, "last_layer": 16,
       "steps_done": 10, "busy_ms": 10}]})"));
  ASSERT_EQ(stages.size(), 2);
  const StageFacts& first = stages.at("a:1");
  EXPECT_EQ(first.layers, "0-14");
  EXPECT_EQ(first.steps, 10);
  EXPECT_EQ(first.step_milliseconds, 3.0);
  EXPECT_EQ(first.share, 0.75);
  EXPECT_EQ(stages.at("b:1").layers, "15-15");
  EXPECT_EQ(stages.at("b:1").state, "lost");
  EXPECT_EQ(FactColumns(&first), "      0-14      3.000       75.0 %");
}

TEST(StageFactsTest, WhatIsNotKnownIsADash) {
  const auto stages = StagesOf(
      Json::parse(R"({"stages": [{"address": "a:1", "state": "connecting",
      "first_layer": 0, "last_layer": 0, "steps_done": null,
      "busy_ms": null}]})"));
  const std::string dashes = "         -          -            -";
  EXPECT_EQ(FactColumns(&stages.at("a:1")), dashes);
  EXPECT_EQ(FactColumns(nullptr), dashes);
  EXPECT_EQ(FactHeads().size(), dashes.size());
  EXPECT_TRUE(StagesOf(Json()).empty());
}

}  // namespace
}  // namespace sluice::cli
