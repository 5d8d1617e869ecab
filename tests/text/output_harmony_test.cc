#include <gtest/gtest.h>

#include "common/text/utf8.h"
#include "tests/testing/test_data.h"
#include "tests/text/output_fixtures.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

TEST(OutputHarmonyTest, ChannelsAreToldApart) {
  EXPECT_EQ(Harmony("<|channel|>analysis<|message|>Look. <|end|><|start|>"
                    "assistant<|channel|>final<|message|> It is blue.\n"
                    "<|return|>"),
            "think[Look. ] text[ It is blue.\n]");
}

TEST(OutputHarmonyTest, ARecipientMayStandBeforeOrBehindTheChannel) {
  const std::string call = "get_weather[{\"city\": \"Paris\"}]";
  for (const std::string header :
       {"<|channel|>commentary to=functions.get_weather <|constrain|>json",
        " to=functions.get_weather<|channel|>commentary json",
        " to=functions.get_weather<|channel|>commentary <|constrain|>json",
        "<|channel|>commentary to=functions.get_weather",
        "<|channel|>commentary to=functions.get_weather code",
        "<|channel|>analysis to=functions.get_weather",
        "<|channel|>commentary to=get_weather",
        "<|start|>assistant to=functions.get_weather<|channel|>commentary"}) {
    EXPECT_EQ(Harmony(header + "<|message|>{\"city\": \"Paris\"}<|call|>"),
              call)
        << header;
  }
}

TEST(OutputHarmonyTest, APreambleIsContentAndACallMayHaveNoArguments) {
  EXPECT_EQ(
      Harmony("<|channel|>analysis<|message|>a<|end|><|start|>assistant"
              "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
              "<|channel|>commentary to=functions.get_current_time<|message|>"
              "<|call|>"),
      "think[a] text[I look.] get_current_time[{}]");
}

TEST(OutputHarmonyTest, MessagesOfOneKindAreSetApartByALineFeed) {
  EXPECT_EQ(Harmony("<|channel|>commentary<|message|>I look.<|end|><|start|>"
                    "assistant<|channel|>final<|message|>Blue.<|return|>"),
            "text[I look.\nBlue.]");
}

TEST(OutputHarmonyTest, ToolsThatTheModelKnowsItselfAreReasoning) {
  EXPECT_EQ(Harmony("<|channel|>analysis to=python code<|message|>1+1<|call|>"),
            "think[1+1]");
  EXPECT_EQ(Harmony("<|channel|>commentary to=browser.search code<|message|>{}"
                    "<|call|><|start|>browser.search to=assistant<|channel|>"
                    "commentary<|message|>found<|end|><|start|>assistant"
                    "<|channel|>final<|message|>Yes.<|return|>"),
            "think[{}\nfound] text[Yes.]");
}

TEST(OutputHarmonyTest, WithoutToolsACallIsContent) {
  EXPECT_EQ(Told(kHarmony, WithoutTools(),
                 AsHarmony("<|channel|>commentary to=functions.f<|message|>{}"
                           "<|call|>")),
            "text[{}]");
}

TEST(OutputHarmonyTest, TextThatSpellsAMarkerIsText) {
  // The whole output as ordinary tokens: no marker is in it.
  const std::string text = "<|channel|>final<|message|>Hi<|end|>";
  EXPECT_EQ(Told(kHarmony, WithTools(), AsText(text)), "text[" + text + "]");
  OutputStream stream = AsHarmony("<|channel|>final<|message|>");
  stream.push_back({-1, "Say <|end|>."});
  stream.push_back(AsHarmony("<|return|>").front());
  EXPECT_EQ(Told(kHarmony, WithTools(), stream), "text[Say <|end|>.]");
}

TEST(OutputHarmonyTest, ACharacterThatAMarkerCutsOffComesBeforeIt) {
  OutputStream stream = AsHarmony("<|channel|>final<|message|>a<|end|>");
  stream.back().text = "\uFFFD<|end|>";
  EXPECT_EQ(Told(kHarmony, WithTools(), stream), "text[a\uFFFD]");
}

TEST(OutputHarmonyTest, MarkersNeedNoText) {
  OutputStream stream = AsHarmony("<|channel|>final<|message|>a<|end|>");
  for (OutputPiece& piece : stream) {
    if (piece.id >= 0) piece.text.clear();
  }
  EXPECT_EQ(Told(kHarmony, WithTools(), stream), "text[a]");
}

TEST(OutputHarmonyTest, AnOutputThatIsCutShort) {
  const auto cut = [](std::string_view text) {
    return Harmony(text, OutputEnd::kCutShort);
  };
  EXPECT_EQ(cut("<|channel|>analysis<|message|>I go"), "think[I go]");
  EXPECT_EQ(cut("<|channel|>anal"), "");
  EXPECT_EQ(
      cut("<|channel|>commentary to=functions.get_weather<|message|>{\"c"),
      "get_weather[{\"c...");
  EXPECT_EQ(cut("<|channel|>commentary to=functions.get_weather"), "");
}

TEST(OutputHarmonyTest, WhatHasNoProperHeaderIsContent) {
  EXPECT_EQ(Harmony("Hello there"), "text[Hello there]");
  EXPECT_EQ(Harmony(" Hello<|end|>"), "text[Hello]");
  EXPECT_EQ(Harmony("to be<|return|>"), "text[to be]");
  EXPECT_EQ(Harmony("to"), "text[to]");
  EXPECT_EQ(Harmony("<|message|>Hi<|end|>"), "text[Hi]");
  EXPECT_EQ(Harmony("<|channel|><|message|>Hi<|end|>"), "text[Hi]");
  EXPECT_EQ(Harmony("<|channel|>secret<|message|>Hi<|end|>"), "text[Hi]");
  EXPECT_EQ(Harmony("<|channel|>final Hi<|end|>"), "text[Hi]");
  EXPECT_EQ(Harmony("<|channel|>analysisHm<|end|>"), "think[Hm]");
  EXPECT_EQ(Harmony("<|channel|>?"
                    "?<|end|>"),
            "text[??]");
  EXPECT_EQ(Harmony("<|end|><|end|><|message|>a<|message|>b<|constrain|>c"),
            "text[abc]");
}

TEST(OutputHarmonyTest, MissingMarkersArePutIn) {
  EXPECT_EQ(Harmony("<|channel|>analysis<|message|>a<|start|>assistant"
                    "<|channel|>final<|message|>b"),
            "think[a] text[b]");
  EXPECT_EQ(Harmony("<|channel|>analysis<|message|>a<|channel|>final<|message|>"
                    "b"),
            "think[a] text[b]");
  EXPECT_EQ(Harmony("<|channel|>analysis<|message|>a<|end|><|channel|>final"
                    "<|message|>b"),
            "think[a] text[b]");
  EXPECT_EQ(Harmony("<|channel|>commentary to=functions.get_weather "
                    "<|constrain|>json{\"city\": 1}<|call|>"),
            "get_weather[{\"city\": 1}]");
}

TEST(OutputHarmonyTest, WhatCannotBeAFunctionsNameIsNone) {
  for (const std::string name :
       {"get{weather}", "caf\xc3\xa9", "\"free\"", "<free>"}) {
    EXPECT_EQ(Harmony("<|channel|>commentary to=functions." + name +
                      "<|message|>{}<|call|>"),
              "text[{}]")
        << name;
  }
}

TEST(OutputHarmonyTest, AHeaderIsCutBetweenCharacters) {
  // The bound, 1024 bytes, lies within the two bytes of a character.
  const std::string header = "commentary to=functions.";
  const std::string name(1023 - header.size(), 'a');
  EXPECT_EQ(Harmony("<|channel|>" + header + name + "\xc3\xa9yes<|end|>"),
            "text[yes]");
}

TEST(OutputHarmonyTest, AHeaderWithoutEndIsText) {
  const std::string words(3000, 'x');
  EXPECT_EQ(Show(ParseStream(kHarmony, WithTools(),
                             AsHarmony("<|channel|>final " + words))),
            "text[" + words + "]");
}

// What the package of harmony has for its tests ------------------------------

// Ids of o200k_harmony as markers and text. The ranks of the vocabulary are
// a file; its special tokens are these.
OutputStream FromIds(const Tokenizer& base, std::string_view ids) {
  const std::pair<TokenId, std::string_view> kMarkers[] = {
      {200002, "<|return|>"},  {200003, "<|constrain|>"},
      {200005, "<|channel|>"}, {200006, "<|start|>"},
      {200007, "<|end|>"},     {200008, "<|message|>"},
      {200012, "<|call|>"}};
  OutputStream stream;
  Utf8Stream characters;
  TokenId id = 0;
  for (const char c : std::string(ids) + " ") {
    if (c >= '0' && c <= '9') {
      id = id * 10 + (c - '0');
      continue;
    }
    if (id == 0) continue;
    bool marker = false;
    for (const auto& [number, name] : kMarkers) {
      if (number != id) continue;
      stream.push_back(AsHarmony(name).front());
      marker = true;
    }
    if (!marker) {
      stream.push_back({-1, characters.Push(base.TokenBytes(id))});
    }
    id = 0;
  }
  return stream;
}

TEST(OutputHarmonyTest, SharedIdsOfAReasoningResponse) {
  SLUICE_REQUIRE_TEST_DATA(path, "harmony/test_simple_reasoning_response.txt");
  const Tokenizer* base = TestTokenizer("vocab/o200k_base.tiktoken");
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(Told(kHarmony, WithTools(), FromIds(*base, ReadFileOrDie(path))),
            "think[User asks: \"What is 2 + 2?\" Simple arithmetic. Provide "
            "answer.] text[2 + 2 = 4.]");
}

TEST(OutputHarmonyTest, SharedIdsOfAToolCall) {
  SLUICE_REQUIRE_TEST_DATA(path, "harmony/test_simple_tool_call.txt");
  const Tokenizer* base = TestTokenizer("vocab/o200k_base.tiktoken");
  ASSERT_NE(base, nullptr);
  OutputRequest request;
  request.tools = {{"lookup_weather", ""}};
  EXPECT_EQ(Told(kHarmony, request, FromIds(*base, ReadFileOrDie(path))),
            "think[User asks: \"What is the weather in Tokyo?\" We need to use "
            "lookup_weather tool.] lookup_weather[{\"location\": \"Tokyo\"}]");
}

TEST(OutputHarmonyTest, SharedStreamOfSeveralMessages) {
  SLUICE_REQUIRE_TEST_DATA(path, "harmony/test_streamable_parser.txt");
  const std::string text = ReadFileOrDie(path);
  const std::string shown = Told(kHarmony, WithTools(), AsHarmony(text));
  EXPECT_TRUE(shown.starts_with("think[User asks \"Who is the current US"));
  EXPECT_TRUE(shown.ends_with(
      "to confirm.\n{\"query\": \"current US president July 2025\", \"topn\": "
      "10, \"source\": \"news\"}\n{\"result\": \"https://openai.com/\"}]"))
      << shown;
}

TEST(OutputHarmonyTest, SharedToolResponseIsNotForTheUser) {
  SLUICE_REQUIRE_TEST_DATA(path, "harmony/test_tool_response_parsing.txt");
  EXPECT_EQ(Told(kHarmony, WithTools(), AsHarmony(ReadFileOrDie(path))),
            "think[{\"result\": \"https://openai.com/\"} ]");
}

// Every message of an assistant in the rendered conversations, read as an
// output that begins behind <|start|>assistant.
TEST(OutputHarmonyTest, SharedConversationsGiveTheirMessages) {
  SLUICE_REQUIRE_TEST_DATA(
      path, "harmony/test_does_not_drop_if_ongoing_analysis.txt");
  std::string text = ReadFileOrDie(path);
  const std::string begin = "<|start|>assistant";
  text = text.substr(text.find(begin) + begin.size());
  text = text.substr(0, text.find("<|start|>functions."));
  OutputRequest request;
  request.tools = {{"lookup_weather", ""}};
  EXPECT_EQ(Told(kHarmony, request, AsHarmony(text)),
            "think[User asks: “What is the weather in SF?” We need to use "
            "lookup_weather tool.] "
            "lookup_weather[{\"location\": \"San Francisco\"}]");
}

}  // namespace
}  // namespace sluice::testing
