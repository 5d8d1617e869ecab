#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/dialects/openai/answer.h"
#include "common/http/message.h"
#include "common/serving/answer_format.h"
#include "common/serving/choice_text.h"
#include "common/serving/numbers.h"
#include "common/serving/stop_matcher.h"
#include "tests/serving/fake_text.h"

namespace sluice::serving {
namespace {

// Everything shown when `text` comes in pieces of `size` bytes.
std::string Shown(const std::vector<std::string>& stops,
                  const std::string& text, size_t size, bool& matched) {
  StopMatcher matcher(stops);
  std::string shown;
  for (size_t i = 0; i < text.size(); i += size) {
    shown += matcher.Push(std::string_view(text).substr(i, size));
  }
  matched = matcher.matched();
  return shown + matcher.Finish();
}

TEST(GatewayStopMatcherTest, TheOutcomeDoesNotDependOnTheCut) {
  struct Case {
    std::vector<std::string> stops;
    std::string text;
    std::string shown;
    bool matched;
  };
  const Case cases[] = {
      {{"END"}, "some text END more", "some text ", true},
      {{"END"}, "some text EN", "some text EN", false},
      {{"aab"}, "aaaab", "aa", true},
      {{"abc", "b"}, "xabc", "xa", true},
      {{"bc", "abc"}, "xabc", "x", true},
      {{"\n\n"}, "a\nb\n\nc", "a\nb", true},
      {{"é"}, "caf\xc3\xa8 \xc3\xa9!", "caf\xc3\xa8 ", true},
      {{}, "plain", "plain", false},
      {{"longer than the text"}, "longer", "longer", false},
  };
  for (const Case& one : cases) {
    for (size_t size = 1; size <= one.text.size(); ++size) {
      SCOPED_TRACE(one.text + " by " + std::to_string(size));
      bool matched = false;
      EXPECT_EQ(Shown(one.stops, one.text, size, matched), one.shown);
      EXPECT_EQ(matched, one.matched);
    }
  }
}

TEST(GatewayStopMatcherTest, ShowsWhatCanNoLongerBeAStop) {
  StopMatcher matcher({"STOP"});
  EXPECT_EQ(matcher.Push("a S"), "a ");
  EXPECT_EQ(matcher.Push("T"), "");
  EXPECT_EQ(matcher.Push("x"), "STx");
  EXPECT_EQ(matcher.Push("ST"), "");
  EXPECT_EQ(matcher.Finish(), "ST");
}

TokenEvent Event(std::string_view text) {
  TokenEvent event;
  for (const TokenId token : Bytes(text)) {
    event.tokens.push_back({token, {}, {}});
  }
  return event;
}

TEST(GatewayChoiceTextTest, HoldsBackIncompleteCharacters) {
  ChoiceText choice(FakeText(), {}, {1});
  EXPECT_EQ(choice.OnTokens(Event("a\xe2")).text, "a");
  EXPECT_EQ(choice.OnTokens(Event("\x82")).text, "");
  EXPECT_EQ(choice.OnTokens(Event("\xac")).text, "\xe2\x82\xac");
  EXPECT_EQ(choice.OnTokens(Event("\xf0\x9f")).text, "");
  const Delta end = choice.OnEnd({FinishReason::kLength, {}, {}, {}});
  EXPECT_EQ(end.text, "\xef\xbf\xbd");
  EXPECT_EQ(end.finish, FinishReason::kLength);
  EXPECT_EQ(choice.completion_tokens(), 6);
}

TEST(GatewayChoiceTextTest, AStopStringAcrossTokensEndsTheChoice) {
  ChoiceTextOptions options;
  options.stop = {"STOP"};
  ChoiceText choice(FakeText(), options, {1});
  EXPECT_EQ(choice.OnTokens(Event("aST")).text, "a");
  const Delta match = choice.OnTokens(Event("OPxyz"));
  EXPECT_EQ(match.text, "");
  EXPECT_EQ(match.finish, FinishReason::kStop);
  EXPECT_EQ(match.token_ids, Bytes("OP")) << "tokens after it do not count";
  EXPECT_TRUE(choice.ended());
  EXPECT_EQ(choice.OnTokens(Event("more")).text, "");
  EXPECT_FALSE(choice.OnEnd({}).finish.has_value());
}

TEST(GatewayChoiceTextTest, WhatEndedAChoiceIsNamed) {
  ChoiceTextOptions options;
  options.stop = {"no", "STOP"};
  options.stop_token_ids = {33};
  ChoiceText by_string(FakeText(), options, {1});
  EXPECT_EQ(openai::StopReasonJson(by_string.OnTokens(Event("a STOP"))),
            "STOP");
  const auto end_of = [&](std::optional<TokenId> token) {
    ChoiceText choice(FakeText(), options, {1});
    FinalEvent end;
    end.stop_token = token;
    if (!token) end.reason = FinishReason::kLength;
    return openai::StopReasonJson(choice.OnEnd(end));
  };
  EXPECT_EQ(end_of(33), 33);
  EXPECT_TRUE(end_of(kFakeEos).is_null()) << "the model's own end";
  EXPECT_TRUE(end_of(std::nullopt).is_null());
}

TEST(GatewayChoiceTextTest, NoStopStringWithinMinTokens) {
  ChoiceTextOptions options;
  options.stop = {"a"};
  options.min_tokens = 3;
  ChoiceText choice(FakeText(), options, {1});
  EXPECT_EQ(choice.OnTokens(Event("aaa")).text, "aaa");
  EXPECT_TRUE(choice.OnTokens(Event("a")).finish.has_value());
}

TEST(GatewayChoiceTextTest, TheEndTokenCountsButShowsNothing) {
  ChoiceText choice(FakeText(), {}, {1});
  choice.OnTokens(Event("a"));
  FinalEvent final_event;
  final_event.stop_token = kFakeEos;
  const Delta end = choice.OnEnd(final_event);
  EXPECT_EQ(end.text, "");
  EXPECT_EQ(end.token_ids, std::vector<TokenId>{kFakeEos});
  EXPECT_EQ(choice.completion_tokens(), 2);
}

TEST(GatewayChoiceTextTest, TheEndTokenHasItsLogprobToo) {
  ChoiceTextOptions options;
  options.logprobs = true;
  ChoiceText choice(FakeText(), options, {1});
  FinalEvent final_event;
  final_event.stop_token = kFakeEos;
  final_event.stop_result = {kFakeEos, TokenLogprob{kFakeEos, -0.5f, 0}, {}};
  const Delta end = choice.OnEnd(final_event);
  ASSERT_EQ(end.logprobs.size(), 1u);
  EXPECT_EQ(end.logprobs[0].token, kFakeEos);
}

TEST(GatewayLogprobTest, OneLogprobHasOneShortText) {
  EXPECT_EQ(DumpJson(LogprobNumber(-0.1f)), "-0.1");
  EXPECT_EQ(DumpJson(LogprobNumber(-1.2345678f)), "-1.2345678");
  EXPECT_EQ(DumpJson(LogprobNumber(-INFINITY)), "-9999.0");
  EXPECT_EQ(DumpJson(LogprobNumber(NAN)), "-9999.0");
}

TEST(GatewayMessageTest, OnlySaneRequestIdsComeBack) {
  EXPECT_EQ(http::SanitizedRequestId("abc-1.2_3:4"), "abc-1.2_3:4");
  for (const std::string& bad :
       {std::string(), std::string("a b"), std::string("a\r\nX: y"),
        std::string(129, 'a')}) {
    EXPECT_EQ(http::SanitizedRequestId(bad).size(), 24u) << bad;
  }
}

}  // namespace
}  // namespace sluice::serving
