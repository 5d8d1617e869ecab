#include "common/dialects/openai/body_digest.h"

#include <gtest/gtest.h>

#include <string_view>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"

namespace sluice::openai {
namespace {

uint64_t DigestOf(std::string_view body) {
  return BodyDigest(*ParseJson(body));
}

TEST(BodyDigestTest, SpellingDoesNotCount) {
  const uint64_t digest = DigestOf(
      R"({"messages": [{"role": "user", "content": "a\nb"}], "top_k": 5,
          "temperature": 0.5, "stream": true, "tools": [{"x": {"p": 1,
          "q": [1, 2]}}]})");
  EXPECT_EQ(digest, DigestOf(
                        R"({"stream":true,"temperature":5e-1,"top_k":5.0,
          "tools":[{"x":{"p":1,"q":[1.0,2]}}],
          "messages":[{"content":"a\u000ab","role":"user"}]})"));
}

TEST(BodyDigestTest, LargeWholeNumbersAreTheIntegersThatTheyAre) {
  const std::pair<const char*, const char*> same[] = {
      {"1e17", "100000000000000000"},
      {"-1e17", "-100000000000000000"},
      {"1e19", "10000000000000000000"},
      {"-9223372036854775808.0", "-9223372036854775808"}};
  for (const auto& [real, integer] : same) {
    EXPECT_EQ(DigestOf(Cat("{\"seed\": ", real, "}")),
              DigestOf(Cat("{\"seed\": ", integer, "}")))
        << real;
  }
  EXPECT_NE(DigestOf(R"({"seed": 1e17})"), DigestOf(R"({"seed": 1e18})"));
  EXPECT_NE(DigestOf(R"({"seed": 1e30})"), DigestOf(R"({"seed": 1e31})"));
}

TEST(BodyDigestTest, TheOrderWithinASchemaCounts) {
  EXPECT_NE(DigestOf(R"({"json_schema": {"properties": {"a": {}, "b": {}}}})"),
            DigestOf(R"({"json_schema": {"properties": {"b": {}, "a": {}}}})"));
  EXPECT_NE(DigestOf(R"({"tools": [{"a": 1, "b": 2}]})"),
            DigestOf(R"({"tools": [{"b": 2, "a": 1}]})"));
}

TEST(BodyDigestTest, WhatChangesNoAnswerDoesNotCount) {
  EXPECT_EQ(DigestOf(R"({"prompt": "a"})"),
            DigestOf(R"({"prompt": "a", "model": "x", "user": "me",
              "metadata": {"a": 1}, "seed": null, "unknown": [1],
              "sse_ping_interval": 3, "cache_salt": "s", "priority": 0})"));
}

TEST(BodyDigestTest, WhatChangesAnAnswerCounts) {
  const uint64_t digest = DigestOf(R"({"prompt": ["a", "b"], "seed": 1})");
  for (const char* other :
       {R"({"prompt": ["b", "a"], "seed": 1})",
        R"({"prompt": ["ab"], "seed": 1})", R"({"prompt": ["a", "b"]})",
        R"({"prompt": ["a", "b"], "seed": 2})",
        R"({"prompt": ["a", "b"], "seed": 1, "n": 2})",
        R"({"prompt": ["a", "b"], "seed": 1, "echo": false})",
        R"({"prompt": ["a", "b"], "seed": 1, "request_id": "x"})",
        R"({"prompt": ["a", "b"], "seed": 1, "stop": ["1"]})",
        R"({"prompt": ["a", "b"], "seed": 1, "stop": [1]})"}) {
    EXPECT_NE(DigestOf(other), digest) << other;
  }
}

// Gateways of different releases know one another's ids.
TEST(BodyDigestTest, ItIsTheSameInEveryProcess) {
  EXPECT_EQ(DigestOf(R"({"prompt": "Once upon a time", "temperature": 0.25})"),
            uint64_t{0xe92a6737c40e0e60});
}

}  // namespace
}  // namespace sluice::openai
