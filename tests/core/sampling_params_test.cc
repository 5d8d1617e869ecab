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
      {"logprob_token_ids",
       [](auto& p) {
         p.logprobs = 0;
         p.logprob_token_ids = {kVocab};
       }},
      {"logprob_token_ids",
       [](auto& p) {
         p.logprobs = 0;
         p.logprob_token_ids = {1, 2, 1};
       }},
      {"logprob_token_ids",
       [](auto& p) {
         p.logprobs = 0;
         for (int i = 0; i <= kMaxLogprobTokenIds; ++i) {
           p.logprob_token_ids.push_back(i);
         }
       }},
      {"logprob_token_ids", [](auto& p) { p.logprob_token_ids = {1}; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids = {kVocab}; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids = {-1}; }},
      {"stop_token_ids",
       [](auto& p) { p.stop_token_ids.assign(kMaxStopTokenIds + 1, 1); }},
      {"frequency_penalty", [](auto& p) { p.frequency_penalty = 2.1f; }},
      {"frequency_penalty", [&](auto& p) { p.frequency_penalty = nan; }},
      {"presence_penalty", [](auto& p) { p.presence_penalty = -2.1f; }},
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = 0; }},
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = 101; }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{kVocab, 1}};
       }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{-1, 1}};
       }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{3, 1}, {3, 2}};
       }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{3, 101}};
       }},
      {"logit_bias",
       [&](auto& p) {
         p.logit_bias = {{3, nan}};
       }},
      {"logit_bias", [](auto& p) { p.logit_bias.resize(1025); }},
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
