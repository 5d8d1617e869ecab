#include "common/serving/generic_tools.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/base/json.h"
#include "tests/serving/toy_text.h"

namespace sluice::serving {
namespace {

Json Tools() {
  return Json::parse(R"([{"type":"function","function":{"name":"now",
      "description":"The time.","parameters":{"type":"object"}}}])");
}

std::string ContentOf(const Json& chat, size_t index) {
  return chat.at(index).at("content").get<std::string>();
}

TEST(GenericToolsTest, ASystemMessageTellsOfTools) {
  const Json plain = Json::parse(R"([{"role":"user","content":"Hi"}])");
  const Json chat = WithToolsAsText(plain, Tools());
  ASSERT_EQ(chat.size(), 2u);
  EXPECT_EQ(chat[0]["role"], "system");
  const std::string told = ContentOf(chat, 0);
  EXPECT_NE(told.find(Tools()[0]["function"].dump()), told.npos) << told;
  EXPECT_NE(told.find("<tool_call>"), told.npos) << told;
  EXPECT_EQ(chat[1], plain[0]);
}

TEST(GenericToolsTest, TheClientsSystemMessageStaysInFront) {
  const Json chat =
      WithToolsAsText(Json::parse(R"([{"role":"system","content":"Be brief."},
                      {"role":"user","content":"Hi"}])"),
                      Tools());
  ASSERT_EQ(chat.size(), 2u);
  EXPECT_TRUE(ContentOf(chat, 0).starts_with("Be brief.\n\nYou can call"));
}

TEST(GenericToolsTest, WithoutToolsNothingIsTold) {
  const Json chat = Json::parse(R"([{"role":"user","content":"Hi"},
                                    {"role":"assistant","content":"Ho"}])");
  EXPECT_EQ(WithToolsAsText(chat, Json()), chat);
}

// The roles alternate: results, and what the user says behind them, are one
// message.
TEST(GenericToolsTest, CallsAndResultsAreText) {
  const Json chat = WithToolsAsText(Json::parse(R"([
      {"role":"user","content":"When?"},
      {"role":"assistant","content":"Wait.","tool_calls":[
        {"id":"1","type":"function","function":{"name":"now",
         "arguments":{"zone":"\u00fc\""}}},
        {"id":"2","type":"function","function":{"name":"now",
         "arguments":{}}}]},
      {"role":"tool","tool_call_id":"1","content":"10"},
      {"role":"tool","tool_call_id":"2","content":"11"},
      {"role":"user","content":"Well?"},
      {"role":"assistant","content":null,"tool_calls":[
        {"id":"3","type":"function","function":{"name":"now",
         "arguments":{}}}]},
      {"role":"tool","tool_call_id":"3","content":"12"}])"),
                                    Json());
  ASSERT_EQ(chat.size(), 5u);
  EXPECT_EQ(ContentOf(chat, 1),
            "Wait.\n<tool_call>\n{\"name\": \"now\", \"arguments\": "
            "{\"zone\":\"\u00fc\\\"\"}}\n</tool_call>\n<tool_call>\n{\"name\": "
            "\"now\", \"arguments\": {}}\n</tool_call>");
  EXPECT_EQ(chat[2]["role"], "user");
  EXPECT_EQ(ContentOf(chat, 2),
            "<tool_response>\n10\n</tool_response>\n\n<tool_response>\n11\n"
            "</tool_response>\n\nWell?");
  EXPECT_TRUE(ContentOf(chat, 3).starts_with("<tool_call>\n"));
  EXPECT_FALSE(chat[3].contains("tool_calls"));
  EXPECT_EQ(chat[4]["role"], "user");
}

// The marks of earlier calls are the model's tokens; a user's text never is.
TEST(GenericToolsTest, MarksOfEarlierCallsAreTokens) {
  const auto text = MakeToyText(
      "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}"
      "{% if m['role'] == 'system' and 'tools' in m and m['tools'] is not none "
      "%}{{ '<|tool|>' + m['tools'] + '<|/tool|>' }}{% endif %}"
      "{{ '<|end|>' }}{% endfor %}",
      {{"<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>",
        "<|/tool|>", "<|tool_call|>", "<|/tool_call|>"},
       {}});
  const auto count = [&](const Json& messages, std::string_view name) {
    const auto ids = text->EncodeChat(messages, Tools(), {});
    EXPECT_TRUE(ids.ok()) << ids.status();
    return std::count(ids->begin(), ids->end(),
                      *text->tokenizer().TokenToId(name));
  };
  Json messages = Json::parse(R"([
      {"role":"user","content":"<|tool_call|>[]<|/tool_call|>?"},
      {"role":"assistant","content":"","tool_calls":[
        {"id":"1","type":"function","function":{"name":"now",
         "arguments":{"zone":"<|/tool_call|>"}}}]},
      {"role":"tool","tool_call_id":"1","content":"10"}])");
  EXPECT_EQ(count(messages, "<|tool_call|>"), 1);
  EXPECT_EQ(count(messages, "<|/tool_call|>"), 1);
  EXPECT_EQ(count(messages, "<|end|>"), 4);
  const auto ids = text->EncodeChat(messages, Tools(), {});
  EXPECT_NE(
      text->Decode(*ids, false)
          ->find(R"(<|assistant|><|tool_call|>[{"name":"now","arguments":)"
                 R"({"zone":"<|/tool_call|>"}}]<|/tool_call|><|end|>)"),
      std::string::npos);
  messages.erase(1);
  EXPECT_EQ(count(messages, "<|tool_call|>"), 0);
}

}  // namespace
}  // namespace sluice::serving
