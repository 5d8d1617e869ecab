#include "common/tools/eval/api.h"

#include <gtest/gtest.h>

#include "common/base/json.h"
#include "common/tools/eval/checks.h"
#include "tests/http/one_answer.h"

namespace sluice::eval {
namespace {

// An answer of three tokens, with `rest` after its choices.
Json Answered(const std::string& rest) {
  return *ParseJson(
      R"({"choices":[{"logprobs":{"tokens":["token_id:1","token_id:2",)"
      R"("token_id:3"],"token_logprobs":[null,-1,-2]}}])" +
      rest + "}");
}

TEST(ProbeAnswerTest, TheUsageTellsWhereThePromptEnds) {
  const auto answer =
      ReadProbeAnswer(Answered(R"(,"usage":{"completion_tokens":1})"), 1);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->prompt_length, 2u);
}

TEST(ProbeAnswerTest, AnAnswerOfAnotherLengthIsRefused) {
  for (const char* usage :
       {"", R"(,"usage":{})", R"(,"usage":{"completion_tokens":"2"})",
        R"(,"usage":{"completion_tokens":1})",
        R"(,"usage":{"completion_tokens":3})"}) {
    EXPECT_EQ(ReadProbeAnswer(Answered(usage), 2).status().code(),
              StatusCode::kFailedPrecondition)
        << usage;
  }
}

TEST(ProbeAnswerTest, AnEchoOfOtherIdsIsRefused) {
  ProbeAnswer answer;
  answer.ids = {1, 2, 3};
  answer.prompt_length = 2;
  EXPECT_TRUE(RequireEcho("p", {1, 2}, answer).ok());
  for (const auto& sent :
       std::vector<std::vector<int64_t>>{{1, 9}, {1}, {1, 2, 3}, {}}) {
    EXPECT_EQ(RequireEcho("p", sent, answer).code(),
              StatusCode::kFailedPrecondition);
  }
}

TEST(RunningRequestsTest, TheServersGaugeIsRead) {
  const http::testing::OneAnswer told(http::testing::HttpAnswer(
      "200 OK", "vllm:num_requests_running{model_name=\"m\"} 5\n"));
  EXPECT_EQ(*EvalApi(told.url(), "m").RunningRequests(), 5);
  const http::testing::OneAnswer silent(
      http::testing::HttpAnswer("200 OK", "x 1\n"));
  EXPECT_EQ(EvalApi(silent.url(), "m").RunningRequests().status().code(),
            StatusCode::kNotFound);
}

TEST(OverlapNoteTest, WhatCannotBeShownIsSaid) {
  for (const double running : {-1.0, 0.0, 1.0}) {
    EXPECT_NE(OverlapNote(running).find("cannot be shown"), std::string::npos)
        << running;
  }
  EXPECT_EQ(OverlapNote(7), "The server's gauge told up to 7 running at once.");
}

}  // namespace
}  // namespace sluice::eval
