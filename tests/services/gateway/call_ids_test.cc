// Ids that clients see tell nothing of the seeds that others get, and are the
// same again in a stream that goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "services/gateway/answer_start.h"

namespace sluice::gateway {
namespace {

using ::testing::MatchesRegex;

AnswerStart StartOf(const http::HttpRequest& request) {
  auto start = StartAnswer(request, kChatPath, {});
  EXPECT_TRUE(start.ok()) << start.status();
  return *std::move(start);
}

TEST(CallIdsTest, EveryRequestHasItsOwn) {
  std::set<std::string> ids;
  std::set<uint64_t> seeds;
  http::HttpRequest request;
  for (int i = 0; i < 1000; ++i) {
    // Also those with one X-Request-Id, within one second.
    request.request_id = i % 2 == 0 ? "one" : http::RandomId();
    const AnswerStart start = StartOf(request);
    EXPECT_THAT(start.CallIds(), MatchesRegex("call_[0-9a-f]{16}_"));
    ids.insert(start.CallIds());
    seeds.insert(start.origin.seed);
  }
  EXPECT_EQ(ids.size(), 1000u);
  EXPECT_EQ(seeds.size(), 1000u);
}

TEST(CallIdsTest, TheyAreAFunctionOfTheOrigin) {
  http::HttpRequest request;
  request.request_id = http::RandomId();
  const AnswerStart start = StartOf(request);
  AnswerStart again;
  again.origin = start.origin;
  EXPECT_EQ(again.CallIds(), start.CallIds());
  again.origin.seed ^= 1;
  EXPECT_NE(again.CallIds(), start.CallIds());
}

}  // namespace
}  // namespace sluice::gateway
