// From a body's messages to those that templates render.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/json.h"
#include "common/serving/chat_parts.h"
#include "tests/dialects/openai/parse_testing.h"

namespace sluice::openai {
namespace {

using ::testing::HasSubstr;

TEST(GatewayMessagesTest, MessagesAreNormalised) {
  const auto got = Messages(R"([{"role":"developer","content":"be kind"},
    {"role":"user","content":[{"type":"text","text":"a"},
                              {"type":"text","text":"b"}],"name":"ada"},
    {"role":"assistant","content":null,"tool_calls":[{"id":"1",
     "type":"function","function":{"name":"f","arguments":"{}"}}]},
    {"role":"tool","content":"42","tool_call_id":"1"}])");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0]["role"], "system");
  EXPECT_EQ((*got)[1]["content"], "a\nb");
  EXPECT_EQ((*got)[1]["name"], "ada");
  EXPECT_EQ((*got)[2]["content"], "");
  EXPECT_EQ((*got)[2]["tool_calls"][0]["id"], "1");
  EXPECT_EQ((*got)[3]["tool_call_id"], "1");
}

TEST(GatewayMessagesTest, AnOlderHistoryIsOneOfTools) {
  const auto got = Messages(R"([
    {"role":"assistant","content":null,
     "function_call":{"name":"f","arguments":"{\"a\":1}"}},
    {"role":"function","name":"f","content":"42"},
    {"role":"assistant","content":"a","function_call":null},
    {"role":"tool","tool_call_id":"1","content":null},
    {"role":"tool","tool_call_id":"1"}])");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(DumpJson((*got)[0]["tool_calls"]),
            "[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":{\"a\":1}}}]");
  EXPECT_EQ((*got)[1]["role"], "tool");
  EXPECT_EQ((*got)[1]["name"], "f");
  EXPECT_EQ((*got)[1]["content"], "42");
  EXPECT_FALSE((*got)[2].contains("tool_calls"));
  EXPECT_EQ((*got)[3]["content"], "");
  EXPECT_EQ((*got)[4]["content"], "");
}

TEST(GatewayMessagesTest, PartsOfOpenAisAnswersAreText) {
  const auto got = Messages(R"([
    {"role":"user","content":[{"type":"input_text","text":"a"}]},
    {"role":"assistant","content":[{"type":"output_text","text":"b",
      "annotations":[]},{"type":"refusal","refusal":"no"}]},
    {"role":"assistant","content":null,"refusal":"I will not"},
    {"role":"assistant","content":"c","refusal":null}])");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0]["content"], "a");
  EXPECT_EQ((*got)[1]["content"], "b\nno");
  EXPECT_EQ((*got)[2]["content"], "I will not");
  EXPECT_EQ((*got)[3]["content"], "c");
  const auto bad = Messages(
      R"([{"role":"assistant","content":[{"type":"refusal","text":"a"}]}])");
  EXPECT_THAT(Message(bad.status()),
              HasSubstr("messages[0].content[0].refusal must be a string"));
}

TEST(GatewayMessagesTest, MembersThatChangeAMessageAreRefused) {
  for (const char* member : {"images", "audio", "prefix", "partial"}) {
    const auto with = [&](const char* value) {
      return Messages(Cat("[{\"role\":\"user\",\"content\":\"a\",\"", member,
                          "\":", value, "}]"));
    };
    for (const char* nothing : {"null", "false", "[]"}) {
      EXPECT_TRUE(with(nothing).ok()) << member << nothing;
    }
    ExpectParam(with("[\"aGk=\"]"), "messages");
    ExpectParam(with("true"), "messages");
    EXPECT_THAT(Message(with("true").status()),
                HasSubstr(Cat("messages[0].", member)));
  }
}

TEST(GatewayMessagesTest, ReasoningOfAnAssistantHasOneName) {
  const auto got = Messages(R"([
    {"role":"assistant","content":"a","reasoning":"one"},
    {"role":"assistant","content":"a","reasoning":"one",
     "reasoning_content":"two","refusal":null,"audio":null},
    {"role":"assistant","content":"a","reasoning_content":""},
    {"role":"assistant","content":"a","tool_calls":[]},
    {"role":"user","content":"a","reasoning_content":"x",
     "tool_calls":[{"id":"1"}]}])");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0]["reasoning_content"], "one");
  EXPECT_FALSE((*got)[0].contains("reasoning"));
  EXPECT_EQ((*got)[1]["reasoning_content"], "two");
  EXPECT_EQ((*got)[1].size(), 3u);
  EXPECT_FALSE((*got)[2].contains("reasoning_content"));
  EXPECT_FALSE((*got)[3].contains("tool_calls"));
  EXPECT_EQ((*got)[4].size(), 2u) << "only an assistant has them";
}

TEST(GatewayMessagesTest, BadCallsAreRefusedWithTheirPlace) {
  const auto refused = [](const std::string& call) {
    const auto got =
        Messages(Cat("[{\"role\":\"assistant\",\"tool_calls\":[", call, "]}]"));
    ExpectParam(got, "messages");
    return std::string(Message(got.status()));
  };
  const std::string place = "messages[0].tool_calls[0]";
  EXPECT_THAT(refused("5"), HasSubstr(place));
  EXPECT_THAT(refused("{\"type\":\"custom\"}"), HasSubstr(place + ".type"));
  EXPECT_THAT(refused("{}"), HasSubstr(place + ".function"));
  EXPECT_THAT(refused("{\"function\":{\"name\":\"\"}}"),
              HasSubstr(place + ".function.name"));
  EXPECT_THAT(refused("{\"function\":{\"name\":\"a\",\"arguments\":[1]}}"),
              HasSubstr(place + ".function.arguments"));
  EXPECT_THAT(refused("{\"id\":5,\"function\":{\"name\":\"a\"}}"),
              HasSubstr(place + ".id"));
  const auto old = [](const char* call) {
    return Messages(
        Cat("[{\"role\":\"assistant\",\"function_call\":", call, "}]"));
  };
  EXPECT_THAT(Message(old("5").status()),
              HasSubstr("messages[0].function_call must be an object"));
  EXPECT_THAT(Message(old("{}").status()),
              HasSubstr("messages[0].function_call.name"));
  EXPECT_THAT(Message(old("{\"name\":\"f\"},\"tool_calls\":[{\"function\":{"
                          "\"name\":\"f\"}}]")
                          .status()),
              HasSubstr("cannot go with tool_calls"));
}

TEST(GatewayMessagesTest, NamesAndIdsOfMessagesAreShort) {
  const auto with = [](const char* format, size_t bytes) {
    std::string text = format;
    text.replace(text.find('$'), 1, std::string(bytes, 'n'));
    return Messages(text);
  };
  for (const char* format :
       {R"([{"role":"user","content":"a","name":"$"}])",
        R"([{"role":"tool","content":"a","tool_call_id":"$"}])",
        R"([{"role":"assistant","tool_calls":[{"id":"$",
            "function":{"name":"f"}}]}])",
        R"([{"role":"assistant","tool_calls":[{
            "function":{"name":"$"}}]}])"}) {
    SCOPED_TRACE(format);
    EXPECT_TRUE(with(format, serving::kMaxNameBytes).ok());
    const auto got = with(format, serving::kMaxNameBytes + 1);
    ExpectParam(got, "messages");
    EXPECT_THAT(Message(got.status()), HasSubstr("has 129 bytes, limit 128"));
  }
}

TEST(GatewayMessagesTest, ArgumentsAreReadOutOfTheRequestsOneBudget) {
  std::string arguments = "[0";
  for (int i = 1; i < 100; ++i) arguments += ",0";
  const Json call{
      {"function",
       {{"name", "f"}, {"arguments", Cat("{\"a\":", arguments, "]}")}}}};
  const Json messages = Json::array(
      {{{"role", "assistant"}, {"tool_calls", Json::array({call, call})}}});
  JsonBudget budget{205};
  EXPECT_TRUE(ParseMessages(messages, budget).ok());
  budget.values = 150;
  const auto got = ParseMessages(messages, budget);
  ExpectParam(got, "messages");
  EXPECT_THAT(Message(got.status()),
              HasSubstr("messages[0].tool_calls[1].function.arguments"));
}

TEST(GatewayMessagesTest, BadMessagesAreRefusedWithTheirPlace) {
  for (const char* messages :
       {"[]", "5", "[5]", "[{}]", "[{\"role\":\"robot\",\"content\":\"x\"}]",
        "[{\"role\":\"user\"}]", "[{\"role\":\"user\",\"content\":5}]",
        "[{\"role\":\"user\",\"content\":[\"x\"]}]",
        "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]",
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}]",
        "[{\"role\":\"user\",\"content\":\"x\",\"name\":1}]",
        "[{\"role\":\"assistant\",\"tool_calls\":[1]}]"}) {
    SCOPED_TRACE(messages);
    ExpectParam(Messages(messages), "messages");
  }
  const auto got =
      Messages("[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]");
  EXPECT_THAT(Message(got.status()), HasSubstr("messages[0].content[0].type"));
}

TEST(GatewayMessagesTest, APictureBeforeTheLastTurnOfTheUserIsANote) {
  const std::string picture =
      R"({"type":"image_url","image_url":{"url":"data:,"}})";
  const std::string note(serving::kImageNote);
  const auto messages = Messages(
      Cat(R"([{"role":"user","content":[{"type":"text","text":"See"},)",
          picture, R"(]},{"role":"assistant","content":"A cat"},)",
          R"({"role":"user","content":"More","images":[]},)",
          R"({"role":"tool","content":[)", picture,
          R"(,{"type":"input_image"}]}])"));
  ASSERT_TRUE(messages.ok()) << messages.status();
  EXPECT_EQ((*messages)[0]["content"], "See\n" + note);
  EXPECT_EQ((*messages)[3]["content"], note + "\n" + note);
  const auto images =
      Messages(R"([{"role":"user","content":"See","images":["a","b"]},)"
               R"({"role":"user","content":"More"}])");
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_EQ((*images)[0]["content"], "See\n" + note + "\n" + note);
}

TEST(GatewayMessagesTest, APictureInTheLastTurnOfTheUserIsRefusedByName) {
  for (const std::string part : {"image_url", "input_image", "image"}) {
    const auto refused =
        Messages(Cat(R"([{"role":"user","content":"hi"},{"role":"user",)",
                     R"("content":[{"type":")", part,
                     R"("}]},{"role":"tool","content":"x"}])"));
    EXPECT_THAT(Message(refused.status()),
                HasSubstr(Cat("messages[1].content[0].type \"", part,
                              "\" is not supported")));
  }
  const auto refused =
      Messages(R"([{"role":"user","content":"hi","images":["a"]}])");
  EXPECT_THAT(Message(refused.status()),
              HasSubstr("messages[0].images is not supported"));
  // Sound is no picture.
  EXPECT_FALSE(
      Messages(R"([{"role":"tool","content":[{"type":"input_audio"}]},)"
               R"({"role":"user","content":"hi"}])")
          .ok());
}

}  // namespace
}  // namespace sluice::openai
