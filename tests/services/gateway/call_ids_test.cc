// Ids that clients see tell nothing of the seeds that others get; those of
// calls tell nothing of their own, and are the same again in a stream that goes
// on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/dialects/openai/common_fields.h"
#include "common/serving/answer_start.h"

namespace sluice::gateway {
namespace {

using ::testing::MatchesRegex;

serving::AnswerStart StartOf(const http::HttpRequest& request) {
  const serving::GenerationFields fields(openai::kChatNames);
  auto start = serving::StartAnswer(request, "/v1/chat/completions", fields);
  EXPECT_TRUE(start.ok()) << start.status();
  return *std::move(start);
}

uint64_t WordOf(const std::string& ids) {
  return std::stoull(ids.substr(5, 16), nullptr, 16);  // "call_", 16 digits
}

// The word of std::mt19937_64's state that gave `y`.
uint64_t Untempered(uint64_t y) {
  y ^= y >> 43;
  y ^= (y << 37) & 0xfff7eee000000000;
  uint64_t x = y;
  for (int i = 0; i < 4; ++i) x = y ^ ((x << 17) & 0x71d67fffeda60000);
  y = x;
  for (int i = 0; i < 3; ++i) x = y ^ ((x >> 29) & 0x5555555555555555);
  return x;
}

// What follows `words`, if they are a Mersenne Twister's.
uint64_t NextOf(const std::vector<uint64_t>& words) {
  std::ostringstream state;
  for (const uint64_t word : words) state << Untempered(word) << ' ';
  state << words.size();
  std::mt19937_64 twister;
  std::istringstream(state.str()) >> twister;
  return twister();
}

TEST(CallIdsTest, TheOracleSeesThroughAMersenneTwister) {
  std::mt19937_64 twister(7);
  std::vector<uint64_t> words(std::mt19937_64::state_size);
  for (uint64_t& word : words) word = twister();
  EXPECT_EQ(NextOf(words), twister());
}

// Of ids, and of the seeds, which the ids of a stream's events tell.
TEST(CallIdsTest, TheNextWordCannotBeToldFromThoseBefore) {
  http::HttpRequest request;
  request.request_id = "one";
  std::vector<uint64_t> ids, seeds;
  for (size_t i = 0; i < std::mt19937_64::state_size; ++i) {
    const serving::AnswerStart start = StartOf(request);
    ids.push_back(WordOf(start.CallIds("call_")));
    seeds.push_back(start.origin.seed);
  }
  const serving::AnswerStart next = StartOf(request);
  EXPECT_NE(NextOf(ids), WordOf(next.CallIds("call_")));
  EXPECT_NE(NextOf(seeds), next.origin.seed);
}

TEST(CallIdsTest, EveryRequestHasItsOwn) {
  std::set<std::string> ids;
  std::set<uint64_t> seeds;
  http::HttpRequest request;
  for (int i = 0; i < 1000; ++i) {
    // Also those with one X-Request-Id, within one second.
    request.request_id = i % 2 == 0 ? "one" : http::RandomId();
    const serving::AnswerStart start = StartOf(request);
    EXPECT_THAT(start.CallIds("call_"), MatchesRegex("call_[0-9a-f]{16}_"));
    ids.insert(start.CallIds("call_"));
    seeds.insert(start.origin.seed);
  }
  EXPECT_EQ(ids.size(), 1000u);
  EXPECT_EQ(seeds.size(), 1000u);
}

TEST(CallIdsTest, TheyAreAFunctionOfOriginAndRequest) {
  http::HttpRequest request;
  request.request_id = http::RandomId();
  const serving::AnswerStart start = StartOf(request);
  serving::AnswerStart again;
  again.origin = start.origin;
  EXPECT_EQ(again.CallIds("call_"), start.CallIds("call_"));
  again.origin.seed ^= 1;
  EXPECT_NE(again.CallIds("call_"), start.CallIds("call_"));
  again.origin = start.origin;
  again.fingerprint = 1;  // one id, time and seed for two requests
  EXPECT_NE(again.CallIds("call_"), start.CallIds("call_"));
  serving::AnswerStart known;
  known.origin = {"golden", false, 1700000000, 7};
  known.fingerprint = 0x123456789abc;
  EXPECT_EQ(known.CallIds("call_"), "call_4b0427f9ed25ee74_")
      << "known in every release";
}

}  // namespace
}  // namespace sluice::gateway
