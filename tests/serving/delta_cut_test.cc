// A stream that goes on where another one was cut, whatever events either had.
#include "common/serving/delta_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/dialects/openai/answer.h"
#include "common/serving/answer_format.h"
#include "common/serving/event_id.h"
#include "tests/serving/fake_text.h"

namespace sluice::serving {
namespace {

using ::testing::HasSubstr;

// What the events of one choice told, joined.
struct Told {
  int roles = 0;
  int finishes = 0;
  std::string content, reasoning;
  std::map<int, std::string> calls;  // "ID NAME ARGUMENTS"
  std::vector<std::string> logprobs;
  std::vector<int> offsets;
  std::vector<int> ids;
  int prompts = 0;
  bool operator==(const Told&) const = default;
};

void Tell(const Json& choice, Told& told) {
  const Json& delta = choice.contains("delta") ? choice["delta"] : choice;
  if (delta.contains("role")) ++told.roles;
  if (delta.contains("text")) told.content += delta["text"];
  if (delta.contains("content") && delta["content"].is_string()) {
    told.content += delta["content"];
  }
  if (delta.contains("reasoning")) told.reasoning += delta["reasoning"];
  for (const Json& call : delta.value("tool_calls", Json::array())) {
    std::string& text = told.calls[call["index"]];
    if (call.contains("id")) {
      text += Cat(call["id"], " ", call["function"]["name"], " ");
    }
    text += call["function"]["arguments"];
  }
  if (const Json& logprobs = choice["logprobs"]; logprobs.is_object()) {
    const bool chat = logprobs.contains("content");
    for (const Json& entry : logprobs[chat ? "content" : "tokens"]) {
      told.logprobs.push_back(DumpJson(entry));
    }
    for (const Json& offset : logprobs.value("text_offset", Json::array())) {
      told.offsets.push_back(offset);
    }
  }
  for (const Json& id : choice.value("token_ids", Json::array())) {
    told.ids.push_back(id);
  }
  if (choice.contains("prompt_token_ids")) ++told.prompts;
  if (!choice["finish_reason"].is_null()) ++told.finishes;
}

// An answer's deltas of two choices, a token each, in the order that they come.
using Script = std::vector<std::pair<int, Delta>>;

Delta Token(std::mt19937& random) {
  Delta delta;
  const auto token = static_cast<TokenId>('a' + random() % 26);
  delta.token_ids = {token};
  delta.logprobs = {WithLogprob(token, -1.5f)};
  return delta;
}

std::string Words(std::mt19937& random) {
  static const char* const kWords[] = {"", "a", "bc", "\xc3\xa9",
                                       "d\xe2\x82\xac"};
  return kWords[random() % std::size(kWords)];
}

Delta ChatToken(std::mt19937& random, int at, int& calls) {
  Delta delta = Token(random);
  if (at < 6) {
    delta.reasoning = Words(random);
  } else if (at < 14) {
    delta.text = Words(random);
  } else {
    if (at % 4 == 2) {
      delta.AddCall({calls, Cat("call_", calls), "name", ""});
      ++calls;
    }
    if (calls > 0) delta.AddCall({calls - 1, "", "", Words(random) + "x"});
  }
  return delta;
}

Script ChatScript(std::mt19937& random) {
  Script script;
  int calls[2] = {0, 0};
  int at[2] = {0, 0};
  while (at[0] < 26 || at[1] < 26) {
    const int choice = at[0] >= 26 || (at[1] < 26 && random() % 2) ? 1 : 0;
    script.emplace_back(choice, ChatToken(random, at[choice]++, calls[choice]));
    if (at[choice] == 26) script.back().second.finish = FinishReason::kStop;
  }
  return script;
}

Script EchoScript(std::mt19937& random) {
  Script script;
  const auto part = [&](int size) {
    auto results = std::make_shared<std::vector<TokenResult>>();
    for (int i = 0; i < size; ++i) {
      results->push_back(WithLogprob(static_cast<TokenId>('A' + i), -2.0f));
    }
    return PromptResults(std::move(results));
  };
  for (int choice : {0, 1}) {
    Delta echo;
    echo.text = "echoed";
    echo.echo_begin = 'Z';
    echo.echoes_prompt = true;
    for (int size : {3, 1, 4}) {
      echo.AddPrompt({part(size)});
      script.emplace_back(choice, std::exchange(echo, Delta()));
      echo.echoes_prompt = true;
    }
  }
  for (int i = 0; i < 24; ++i) {
    Delta delta = Token(random);
    delta.text = Words(random);
    if (i >= 22) delta.finish = FinishReason::kLength;
    script.emplace_back(i % 2, std::move(delta));
  }
  return script;
}

class DeltaCutTest : public ::testing::TestWithParam<bool> {
 protected:
  bool is_chat() const { return GetParam(); }
  Script MakeScript(std::mt19937& random) const {
    return is_chat() ? ChatScript(random) : EchoScript(random);
  }
  // Runs `script`, its neighbours of one choice joined at random; all events.
  std::vector<Event> Run(const Script& script, std::mt19937& random,
                         const StreamProgress& told) {
    AnswerInfo info;
    info.event_head = EventIdHead({http_id_, true, 1, 2}, 3);
    info.logprobs = info.return_token_ids = entries_;
    info.is_parsed = true;
    info.num_choices = 2;
    info.choices_per_prompt = 2;
    info.prompts = {{1}};
    info.told = told;
    const auto format =
        is_chat() ? openai::MakeChatFormat(text_, std::move(info))
                  : openai::MakeCompletionFormat(text_, std::move(info));
    std::vector<DeltaCut> cuts;
    for (const ChoiceProgress& choice : told.choices) cuts.emplace_back(choice);
    std::vector<Event> events;
    for (size_t i = 0; i < script.size();) {
      const int choice = script[i].first;
      Delta delta = script[i++].second;
      while (i < script.size() && script[i].first == choice && random() % 2) {
        delta.Append(script[i++].second);
      }
      if (!entries_) delta.logprobs.clear();
      if (!cuts.empty()) {
        const Status cut = cuts[static_cast<size_t>(choice)].Apply(delta);
        EXPECT_TRUE(cut.ok()) << cut;
      }
      for (Event& event : format->Chunks(choice, delta, {})) {
        events.push_back(std::move(event));
      }
    }
    return events;
  }
  static void Join(const std::vector<Event>& events, size_t count,
                   Told told[2]) {
    for (size_t i = 0; i < count; ++i) {
      const Json choice = (*ParseJson(events[i].json))["choices"][0];
      Tell(choice, told[choice["index"].get<size_t>()]);
    }
  }
  void CheckEveryCut(const Script& script, std::mt19937& random) {
    const std::vector<Event> whole = Run(script, random, {});
    Told want[2];
    Join(whole, whole.size(), want);
    EXPECT_EQ(want[0].finishes, 1);
    const std::vector<Event> first = Run(script, random, {});
    for (size_t cut = 1; cut <= first.size(); ++cut) {
      const auto id = ParseEventId(first[cut - 1].id);
      ASSERT_TRUE(id.ok()) << first[cut - 1].id;
      const std::vector<Event> rest = Run(script, random, id->progress);
      Told got[2];
      Join(first, cut, got);
      Join(rest, rest.size(), got);
      EXPECT_EQ(got[0], want[0]) << first[cut - 1].id;
      EXPECT_EQ(got[1], want[1]) << first[cut - 1].id;
      EXPECT_EQ(rest.empty(), cut == first.size());
      EXPECT_EQ(rest.empty() ? first.back().id : rest.back().id,
                whole.back().id);
    }
  }

  FakeText text_;
  const std::string http_id_ = "0123456789abcdef00112233";
  bool entries_ = true;
};

TEST_P(DeltaCutTest, TheRestJoinsToTheWholeFromEveryEvent) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    CheckEveryCut(MakeScript(random), random);
  }
}

TEST_P(DeltaCutTest, WithoutEntriesTheTextAloneCounts) {
  entries_ = false;
  for (unsigned seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    CheckEveryCut(MakeScript(random), random);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, DeltaCutTest, ::testing::Bool(),
                         [](const auto& format) {
                           return format.param ? "Chat" : "Completion";
                         });

Delta Text(std::string text) {
  Delta delta;
  delta.text = std::move(text);
  return delta;
}

TEST(DeltaCutPlaceTest, NoCharacterIsCutInTwo) {
  const FakeText text;
  DeltaCut cut({true, false, 2});
  Delta delta = Text("a\xc3\xa9");
  EXPECT_THAT(Message(cut.Apply(delta)),
              HasSubstr("within a character of the answer"));
}

TEST(DeltaCutPlaceTest, APlaceBeyondTheEndIsRefused) {
  const FakeText text;
  for (const ChoiceProgress& told :
       {ChoiceProgress{true, false, 4}, ChoiceProgress{true, false, 3, 1},
        ChoiceProgress{true, false, 3, 0, 1},
        ChoiceProgress{true, false, 3, 0, 0, 0, 1}}) {
    DeltaCut cut(told);
    Delta delta = Text("abc");
    delta.finish = FinishReason::kStop;
    EXPECT_THAT(Message(cut.Apply(delta)),
                HasSubstr("beyond the end of the answer"));
  }
}

}  // namespace
}  // namespace sluice::serving
