// Fields by the names of other servers, and variables of the template.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/services/gateway/fields_fixture.h"

namespace sluice::gateway {
namespace {

using ::testing::HasSubstr;

TEST_F(GatewayFieldsTest, TemplateArgumentsReachTheTemplate) {
  const auto prompt = [&](size_t sequence) {
    return *serving::FakeText().Decode(engine_.request(sequence).prompt_tokens,
                                       true);
  };
  Chat("\"chat_template_kwargs\":{\"enable_thinking\":false}");
  EXPECT_THAT(prompt(0), HasSubstr("enable_thinking"));
  Chat("\"reasoning_effort\":\"low\"");
  EXPECT_THAT(prompt(1), HasSubstr("reasoning_effort"));
  Chat("\"chat_template_kwargs\":{\"of_my_model\":{\"a\":[1]}}");
  EXPECT_THAT(prompt(2), HasSubstr("of_my_model"));
  Chat("\"think\":false");
  EXPECT_THAT(prompt(3), HasSubstr("enable_thinking"));
  EXPECT_THAT(ErrorOf(Chat("\"chat_template_kwargs\":{\"bos_token\":\"x\"}")),
              HasSubstr("\"bos_token\" is the server's own"));
  EXPECT_THAT(
      ErrorOf(Chat("\"chat_template_kwargs\":{\"enable_thinking\":\"no\"}")),
      HasSubstr("true or false"));
  EXPECT_THAT(
      ErrorOf(Chat("\"chat_template_kwargs\":{\"date_string\":\"<|x|>\"}")),
      HasSubstr("letters"));
}

TEST_F(GatewayFieldsTest, AHeaderListsWhatTheTemplateNeverReads) {
  const std::string name = "X-Sluice-Unused-Template-Kwargs";
  const auto header = [&](const http::FakeExchange& on) {
    std::string value = "none";
    for (const auto& [key, text] : on.responses.at(0).headers) {
      if (key == name) value = text;
    }
    return value;
  };
  const std::string both =
      "\"chat_template_kwargs\":{\"unread\":1,\"read\":1,"
      "\"unread\\r\\nX: y\":1}";
  const auto whole = Chat(both);
  engine_.End(0, FinishReason::kLength);
  EXPECT_EQ(header(*whole), "unread, unread%0D%0AX%3A%20y");
  const auto stream = Chat(both + ",\"stream\":true");
  engine_.End(1, FinishReason::kLength);
  EXPECT_EQ(header(*stream), "unread, unread%0D%0AX%3A%20y");
  const auto none = Chat("\"chat_template_kwargs\":{\"read\":1}");
  engine_.End(2, FinishReason::kLength);
  EXPECT_EQ(header(*none), "none");
  // What a field of the server's own sets is no name of the client's.
  const auto field = Chat("\"enable_thinking\":false");
  engine_.End(3, FinishReason::kLength);
  EXPECT_EQ(header(*field), "none");
  const auto tokens =
      Route("/tokenize",
            Cat(R"({"messages":[{"role":"user","content":"a"}],)", both, "}"));
  EXPECT_EQ(header(*tokens), "unread, unread%0D%0AX%3A%20y");
  std::string many = "\"chat_template_kwargs\":{\"unread\":0";
  for (int i = 0; i < 200; ++i) many += Cat(",\"unread", i, "\":0");
  const auto long_list = Chat(many + "}");
  engine_.End(4, FinishReason::kLength);
  EXPECT_LE(header(*long_list).size(), 1200u);
  EXPECT_THAT(header(*long_list), ::testing::EndsWith(", .."));
  context_.strict_fields = true;
  http::Router strict;
  AddRoutes(strict);
  const auto refused = http::Post(
      "/v1/chat/completions",
      Cat(R"({"messages":[{"role":"user","content":"a"}],)", both, "}"));
  strict.Route(refused);
  EXPECT_THAT(ErrorOf(refused), HasSubstr("does not read \"unread\""));
  EXPECT_EQ(refused->Body()["error"]["code"], "unknown_parameter");
}

TEST_F(GatewayFieldsTest, NPredictOfMinusOneFillsTheContext) {
  engine_.set_max_context(100);
  Complete("\"n_predict\":-1");
  EXPECT_EQ(engine_.request(0).max_tokens, 100 - 6);
  Complete("\"max_tokens\":-1");
  EXPECT_EQ(engine_.request(1).max_tokens, 16);
  Chat("\"n_predict\":-1");
  EXPECT_EQ(engine_.request(2).max_tokens,
            100 - static_cast<int>(engine_.request(2).prompt_tokens.size()));
  Complete("\"max_new_tokens\":2");
  EXPECT_EQ(engine_.request(3).max_tokens, 2);
}

TEST_F(GatewayFieldsTest, NoProbabilityIsGreedy) {
  Complete("\"top_p\":0,\"temperature\":1.5");
  EXPECT_EQ(Sampling(0).temperature, 0.0f);
  EXPECT_EQ(Sampling(0).top_p, 1.0f);
}

}  // namespace
}  // namespace sluice::gateway
