#include "common/tools/load/workload.h"

#include <gtest/gtest.h>

#include <set>

#include "common/base/json.h"
#include "tests/http/one_answer.h"

namespace sluice::load {
namespace {

// A workload for a server without /tokenize.
StatusOr<Workload> Prepare(const WorkloadOptions& options) {
  const http::testing::OneAnswer server(
      http::testing::HttpAnswer("404 Not Found", "{}"));
  return Workload::Prepare(options, server.url());
}

Json BodyOf(const Workload& workload, int64_t index) {
  return *ParseJson(workload.Request(index).body);
}

TEST(WorkloadTest, LengthsAreANumberOrARange) {
  EXPECT_EQ(LengthRange::Parse("5")->high, 5);
  EXPECT_EQ(LengthRange::Parse("5:9")->low, 5);
  EXPECT_EQ(LengthRange::Parse("5:9")->high, 9);
  for (const char* bad : {"", "0", "-1", "9:5", "5:", "a", "5:9:3", "1e9"}) {
    EXPECT_FALSE(LengthRange::Parse(bad).ok()) << bad;
  }
}

TEST(WorkloadTest, BodiesHaveWhatWasAskedFor) {
  WorkloadOptions options;
  options.model = "m";
  options.output_tokens = {3, 3};
  const auto workload = Prepare(options);
  ASSERT_TRUE(workload.ok()) << workload.status();
  const Json body = BodyOf(*workload, 0);
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["max_tokens"], 3);
  EXPECT_EQ(body["stream_options"]["include_usage"], true);
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_TRUE(body["prompt"].is_string());
  EXPECT_NE(body["prompt"], BodyOf(*workload, 1)["prompt"]);
}

TEST(WorkloadTest, LengthsOfARangeVaryAndRepeatWithTheSeed) {
  WorkloadOptions options;
  options.output_tokens = {10, 20};
  options.seed = 5;
  const auto a = Prepare(options);
  const auto b = Prepare(options);
  std::set<int64_t> lengths;
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(a->Request(i).body, b->Request(i).body);
    lengths.insert(a->Request(i).output_tokens);
  }
  EXPECT_EQ(lengths.size(), 11u);
  EXPECT_EQ(*lengths.begin(), 10);
}

TEST(WorkloadTest, PlainLeavesOutWhatNotEveryServerKnows) {
  WorkloadOptions options;
  options.chat = true;
  options.extensions = false;
  options.extra = R"({"top_p": 0.5})";
  const auto workload = Prepare(options);
  ASSERT_TRUE(workload.ok()) << workload.status();
  const Json body = BodyOf(*workload, 0);
  EXPECT_FALSE(body.contains("ignore_eos"));
  EXPECT_FALSE(body.contains("return_token_ids"));
  EXPECT_EQ(body["top_p"], 0.5);
  EXPECT_EQ(body["messages"][0]["role"], "user");
}

}  // namespace
}  // namespace sluice::load
