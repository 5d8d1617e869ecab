#include "common/core/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace sluice {
namespace {

constexpr int kVocab = 100;

TEST(SamplingParamsTest, DefaultsAreValid) {
  EXPECT_TRUE(Validate(SamplingParams{}, kVocab).ok());
}

TEST(SamplingParamsTest, EachFieldOutOfRangeIsRefusedByName) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const struct {
    const char* name;
    std::function<void(SamplingParams&)> spoil;
  } cases[] = {
      {"temperature", [&](auto& p) { p.temperature = nan; }},
      {"temperature", [](auto& p) { p.temperature = -0.5f; }},
      {"temperature", [](auto& p) { p.temperature = 2.5f; }},
      {"top_p", [](auto& p) { p.top_p = 0; }},
      {"top_p", [&](auto& p) { p.top_p = nan; }},
      {"top_p", [](auto& p) { p.top_p = 1.5f; }},
      {"top_k", [](auto& p) { p.top_k = -1; }},
      {"min_p", [](auto& p) { p.min_p = 1.25f; }},
      {"logprobs", [](auto& p) { p.logprobs = 21; }},
      {"prompt_logprobs", [](auto& p) { p.prompt_logprobs = -2; }},
      {"min_tokens", [](auto& p) { p.min_tokens = -1; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids = {kVocab}; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids = {-1}; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids.assign(129, 1); }},
  };
  for (const auto& c : cases) {
    SamplingParams params;
    c.spoil(params);
    const Status status = Validate(params, kVocab);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.name;
    EXPECT_NE(Message(status).find(c.name), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace sluice
