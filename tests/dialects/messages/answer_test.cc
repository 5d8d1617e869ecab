// Messages and the events of their streams, as Anthropic's clients read them.
#include "common/dialects/messages/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/serving/event_id.h"

namespace sluice::messages {
namespace {

using ::testing::ElementsAre;

serving::AnswerInfo Info(serving::StreamProgress told = {}) {
  serving::AnswerInfo info;
  info.id = "msg_1";
  info.model = "claude-opus-5-5";
  info.event_head = serving::EventIdHead({.request_id = "one"}, 0);
  if (told.choices.empty()) told.choices.resize(1);
  info.told = std::move(told);
  return info;
}

MessageFormat Format(serving::StreamProgress told = {}, bool omits = false) {
  return MessageFormat(Info(std::move(told)), {"req_1", omits});
}

constexpr serving::Usage kUsage = {.prompt_tokens = 10,
                                   .completion_tokens = 7,
                                   .cached_tokens = 4,
                                   .reasoning_tokens = 2};

// Thinks, says and calls.
serving::Delta Turn() {
  serving::Delta delta;
  delta.AddReasoning("hm");
  delta.AddText("so");
  delta.AddCall({0, "toolu_0", "f", R"({"a":1})"});
  delta.finish = FinishReason::kStop;
  delta.called = true;
  return delta;
}

std::vector<std::string> Lines(const std::vector<serving::Event>& events) {
  std::vector<std::string> lines;
  for (const serving::Event& event : events) {
    lines.push_back(Cat(event.name, " ", event.json));
  }
  return lines;
}

std::vector<serving::Event> Stream(MessageFormat& format,
                                   const std::vector<serving::Delta>& deltas) {
  std::vector<serving::Event> events = format.Begin({.prompt_tokens = 10});
  const auto add = [&events](std::vector<serving::Event> more) {
    for (serving::Event& event : more) events.push_back(std::move(event));
  };
  for (const serving::Delta& delta : deltas) {
    add(format.Chunks(0, delta, kUsage));
  }
  add(format.End(kUsage));
  return events;
}

TEST(MessagesAnswerTest, StreamsTheBlocksInOrder) {
  MessageFormat format = Format();
  EXPECT_THAT(
      Lines(Stream(format, {Turn()})),
      ElementsAre(
          R"(message_start {"type":"message_start","message":{"id":"msg_1",)"
          R"("type":"message","role":"assistant","model":"claude-opus-5-5",)"
          R"("content":[],"stop_reason":null,"stop_sequence":null,"usage":)"
          R"({"input_tokens":10,"cache_creation_input_tokens":0,)"
          R"("cache_read_input_tokens":0,"output_tokens":0}}})",
          R"(content_block_start {"type":"content_block_start","index":0,)"
          R"("content_block":{"type":"thinking","thinking":"","signature":""}})",
          R"(content_block_delta {"type":"content_block_delta","index":0,)"
          R"("delta":{"type":"thinking_delta","thinking":"hm"}})",
          R"(content_block_delta {"type":"content_block_delta","index":0,)"
          R"("delta":{"type":"signature_delta","signature":"sluice:"}})",
          R"(content_block_stop {"type":"content_block_stop","index":0})",
          R"(content_block_start {"type":"content_block_start","index":1,)"
          R"("content_block":{"type":"text","text":""}})",
          R"(content_block_delta {"type":"content_block_delta","index":1,)"
          R"("delta":{"type":"text_delta","text":"so"}})",
          R"(content_block_stop {"type":"content_block_stop","index":1})",
          R"(content_block_start {"type":"content_block_start","index":2,)"
          R"("content_block":{"type":"tool_use","id":"toolu_0","name":"f",)"
          R"("input":{}}})",
          R"(content_block_delta {"type":"content_block_delta","index":2,)"
          R"("delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}})",
          R"(content_block_stop {"type":"content_block_stop","index":2})",
          R"(message_delta {"type":"message_delta","delta":)"
          R"({"stop_reason":"tool_use","stop_sequence":null},"usage":)"
          R"({"input_tokens":6,"cache_creation_input_tokens":0,)"
          R"("cache_read_input_tokens":4,"output_tokens":7,)"
          R"("output_tokens_details":{"thinking_tokens":2}}})",
          R"(message_stop {"type":"message_stop"})"));
}

TEST(MessagesAnswerTest, AWholeAnswerIsTheMessage) {
  MessageFormat format = Format();
  EXPECT_EQ(format.Whole({Turn()}, kUsage),
            R"({"id":"msg_1","type":"message","role":"assistant",)"
            R"("model":"claude-opus-5-5","content":[{"type":"thinking",)"
            R"("thinking":"hm","signature":"sluice:"},{"type":"text",)"
            R"("text":"so"},{"type":"tool_use","id":"toolu_0","name":"f",)"
            R"("input":{"a":1}}],"stop_reason":"tool_use",)"
            R"("stop_sequence":null,"usage":{"input_tokens":6,)"
            R"("cache_creation_input_tokens":0,"cache_read_input_tokens":4,)"
            R"("output_tokens":7,"output_tokens_details":)"
            R"({"thinking_tokens":2}}})");
}

TEST(MessagesAnswerTest, ThinkingThatIsOmittedStaysInTheSignature) {
  MessageFormat format = Format({}, /*omits=*/true);
  serving::Delta delta;
  delta.AddReasoning("hm");
  delta.AddText("so");
  const auto events = Lines(format.Chunks(0, delta, {}));
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[1],
            R"(content_block_delta {"type":"content_block_delta","index":0,)"
            R"("delta":{"type":"signature_delta","signature":"sluice:hm"}})");
  EXPECT_EQ(events[2],
            R"(content_block_stop {"type":"content_block_stop","index":0})");
  MessageFormat whole = Format({}, /*omits=*/true);
  EXPECT_EQ(DumpJson((*ParseJson(whole.Whole({Turn()}, {})))["content"][0]),
            R"({"type":"thinking","thinking":"","signature":"sluice:hm"})");
}

// What ended an answer, whole and streamed.
std::string StopOf(const serving::Delta& delta, bool by_context = false) {
  const auto told = [](const Json& of) {
    return Cat(DumpJson(of["stop_reason"]), " ", DumpJson(of["stop_sequence"]));
  };
  MessageFormat whole = Format();
  MessageFormat streamed = Format();
  if (by_context) {
    whole.set_limit_is_context();
    streamed.set_limit_is_context();
  }
  const Json message = *ParseJson(whole.Whole({delta}, {}));
  const auto events = Stream(streamed, {delta});
  const Json end = *ParseJson(events[events.size() - 2].json);
  EXPECT_EQ(told(message), told(end["delta"]));
  return told(message);
}

TEST(MessagesAnswerTest, TellsWhatEndedTheAnswer) {
  serving::Delta delta;
  delta.AddText("so");
  delta.finish = FinishReason::kStop;
  EXPECT_EQ(StopOf(delta), R"("end_turn" null)");
  EXPECT_EQ(StopOf(delta, /*by_context=*/true), R"("end_turn" null)");
  delta.stop_reason = "a\"b";
  EXPECT_EQ(StopOf(delta), R"("stop_sequence" "a\"b")");
  delta.stop_reason = TokenId{5};
  EXPECT_EQ(StopOf(delta), R"("end_turn" null)");
  delta.stop_reason.reset();
  delta.finish = FinishReason::kLength;
  EXPECT_EQ(StopOf(delta), R"("max_tokens" null)");
  EXPECT_EQ(StopOf(delta, /*by_context=*/true),
            R"("model_context_window_exceeded" null)");
  EXPECT_EQ(StopOf(Turn()), R"("tool_use" null)");
}

TEST(MessagesAnswerTest, ACallThatTheLimitCutsKeepsItsText) {
  MessageFormat format = Format();
  serving::Delta delta;
  delta.AddCall({0, "toolu_0", "f", R"({"a":)"});
  delta.finish = FinishReason::kLength;
  EXPECT_EQ(DumpJson((*ParseJson(format.Whole({delta}, {})))["content"]),
            R"([{"type":"tool_use","id":"toolu_0","name":"f",)"
            R"("input":{"arguments":"{\"a\":"}}])");
}

TEST(MessagesAnswerTest, PingsAndFails) {
  MessageFormat format = Format();
  EXPECT_THAT(Lines(format.Ping()), ElementsAre(R"(ping {"type":"ping"})"));
  http::ApiError error;
  error.http_status = 503;
  error.message = "stage 1 was lost";
  EXPECT_THAT(Lines(format.Fail(error)),
              ElementsAre(R"(error {"type":"error","error":{"type":)"
                          R"("overloaded_error","message":"stage 1 was lost"},)"
                          R"("request_id":"req_1"})"));
}

// A message put together as Anthropic's clients do it.
Json Assembled(const std::vector<serving::Event>& events) {
  Json message;
  std::string partial;
  for (const serving::Event& event : events) {
    const Json json = *ParseJson(event.json);
    EXPECT_EQ(json["type"], event.name);
    const Json delta = json.value("delta", Json());
    if (event.name == "message_start") {
      message = json["message"];
    } else if (event.name == "content_block_start") {
      EXPECT_EQ(json["index"], message["content"].size());
      message["content"].push_back(json["content_block"]);
      partial.clear();
    } else if (event.name == "content_block_delta") {
      Json& block = message["content"].back();
      const auto add = [&](const char* member) {
        block[member] =
            block[member].get<std::string>() + delta[member].get<std::string>();
      };
      if (delta["type"] == "text_delta") add("text");
      if (delta["type"] == "thinking_delta") add("thinking");
      if (delta["type"] == "signature_delta") add("signature");
      if (delta["type"] == "input_json_delta") {
        partial += delta["partial_json"].get<std::string>();
      }
    } else if (event.name == "content_block_stop") {
      if (!partial.empty())
        message["content"].back()["input"] = *ParseJson(partial);
      partial.clear();
    } else if (event.name == "message_delta") {
      message["stop_reason"] = delta["stop_reason"];
      message["stop_sequence"] = delta["stop_sequence"];
      message["usage"] = json["usage"];
    }
  }
  return message;
}

// A delta for each token.
std::vector<serving::Delta> Script(std::mt19937& random) {
  std::vector<serving::Delta> script;
  int calls = 0;
  for (int part = 0; part < 4; ++part) {
    const int kind = static_cast<int>(random() % 3);
    if (kind == 2) {
      script.emplace_back();
      script.back().AddCall({calls, Cat("toolu_", calls), "f", ""});
      for (const char* piece : {"{\"a\"", ":", "[1]}"}) {
        script.emplace_back();
        script.back().AddCall({calls, "", "", piece});
      }
      ++calls;
      continue;
    }
    for (int i = static_cast<int>(random() % 3); i >= 0; --i) {
      script.emplace_back();
      if (kind == 0) script.back().AddText("\xc3\xa9");
      if (kind == 1) script.back().AddReasoning("ab");
    }
  }
  script.back().finish = FinishReason::kStop;
  script.back().called = calls > 0;
  return script;
}

TEST(MessagesAnswerTest, StreamsAreWholeAnswersFromAnyEventOn) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const bool omits = round % 2 == 1;
    const std::vector<serving::Delta> script = Script(random);
    serving::Delta all;
    for (const serving::Delta& delta : script) all.Append(delta);
    MessageFormat whole = Format({}, omits);
    const Json message = *ParseJson(whole.Whole({all}, kUsage));
    MessageFormat format = Format({}, omits);
    const auto events = Stream(format, script);
    EXPECT_EQ(Assembled(events), message);
    for (size_t told = 1; told < events.size(); ++told) {
      const auto id = serving::ParseEventId(events[told - 1].id);
      ASSERT_TRUE(id.ok()) << id.status();
      MessageFormat again = Format(id->progress, omits);
      std::vector<serving::Event> both(events.begin(),
                                       events.begin() + static_cast<int>(told));
      for (serving::Event& event : Stream(again, {all})) {
        both.push_back(std::move(event));
      }
      EXPECT_EQ(Assembled(both), message) << "behind event " << told;
    }
  }
}

}  // namespace
}  // namespace sluice::messages
