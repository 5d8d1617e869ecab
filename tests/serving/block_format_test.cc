// Answers as blocks: in order, whole as streamed, and from any event on.
#include "common/serving/block_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/serving/event_id.h"

namespace sluice::serving {
namespace {

using ::testing::ElementsAre;

const char* NameOf(const AnswerBlock& block) {
  switch (block.kind) {
    case DeltaRun::Kind::kReasoning:
      return "reasoning";
    case DeltaRun::Kind::kText:
      return "text";
    case DeltaRun::Kind::kCall:
      break;
  }
  return "call";
}

// Two events open a block, an event with all of it closes it.
class PlainFormat : public BlockFormat {
 public:
  explicit PlainFormat(const AnswerInfo& info, bool hides = false)
      : BlockFormat(info), hides_(hides) {}

 protected:
  Steps Opening(const Usage&) override {
    return {{"hello", Json::object()}, {"ready", Json::object()}};
  }
  Step Silence() override { return {"still", Json::object()}; }
  Steps Opened(const AnswerBlock& block) override {
    return {{"open", {{"kind", NameOf(block)}, {"name", block.name}}},
            {"part", {{"index", block.index}}}};
  }
  Step Piece(const AnswerBlock& block, std::string_view piece,
             std::span<const TokenResult> logprobs) override {
    if (hides_ && block.kind == DeltaRun::Kind::kReasoning) return {};
    Json json{{"text", piece}};
    for (const TokenResult& one : logprobs) json["ids"].push_back(one.token);
    return {"piece", std::move(json)};
  }
  Steps Closed(const AnswerBlock& block) override {
    return {{"close", {{"text", block.text}, {"cut", block.is_cut}}}};
  }
  Steps Closing(const std::vector<AnswerBlock>& blocks, const AnswerEnd& end,
                const Usage&) override {
    return {{"end", {{"blocks", blocks.size()}, {"called", end.called}}},
            {"bye", Json::object()}};
  }
  Steps Failing(const http::ApiError& error,
                const std::vector<AnswerBlock>& blocks) override {
    return {{"failed", {{"why", error.message}, {"blocks", blocks.size()}}}};
  }
  Json WholeAnswer(const std::vector<AnswerBlock>& blocks, const AnswerEnd&,
                   const Usage&) override {
    Json all = Json::array();
    for (const AnswerBlock& block : blocks) {
      all.push_back(Cat(NameOf(block), " ", block.name, " ", block.text));
    }
    return all;
  }
  void SetNumber(uint64_t number, Json& event) override { event["n"] = number; }

 private:
  const bool hides_;
};

AnswerInfo Info(StreamProgress told = {}) {
  AnswerInfo info;
  info.event_head = EventIdHead({.request_id = "one"}, 0);
  if (told.choices.empty()) told.choices.resize(1);
  info.told = std::move(told);
  return info;
}

// A delta for each token, of reasoning, texts and calls in any order.
std::vector<Delta> BlockScript(std::mt19937& random) {
  std::vector<Delta> script;
  int calls = 0;
  for (int part = 0; part < 5; ++part) {
    const int kind = static_cast<int>(random() % 3);
    if (kind == 2) {
      script.emplace_back();
      script.back().AddCall({calls, Cat("call_", calls), "f", ""});
    }
    for (int i = static_cast<int>(random() % 4); i >= 0; --i) {
      script.emplace_back();
      const char* const text = random() % 2 ? "ab" : "\xc3\xa9";
      if (kind == 0) script.back().AddText(text);
      if (kind == 1) script.back().AddReasoning(text);
      if (kind == 2) script.back().AddCall({calls, "", "", text});
    }
    if (kind == 2) ++calls;
  }
  script.back().finish = FinishReason::kStop;
  return script;
}

// Runs the script in batches of up to `most` tokens.
std::vector<Event> Stream(AnswerFormat& format,
                          const std::vector<Delta>& script,
                          std::mt19937& random, size_t most) {
  std::vector<Event> events = format.Begin({});
  const auto add = [&events](std::vector<Event> more) {
    for (Event& event : more) events.push_back(std::move(event));
  };
  Delta batch;
  size_t left = 1 + random() % most;
  for (const Delta& delta : script) {
    batch.Append(delta);
    if (--left > 0 && !delta.finish) continue;
    add(format.Chunks(0, std::exchange(batch, {}), {}));
    left = 1 + random() % most;
  }
  add(format.End({}));
  return events;
}

// The events without ids and numbers; pieces in a row are one.
std::vector<std::string> Joined(const std::vector<Event>& events) {
  std::vector<std::string> lines;
  bool in_text = false;
  for (const Event& event : events) {
    Json json = *ParseJson(event.json);
    json.erase("n");
    const bool is_piece = event.name == "piece";
    if (is_piece && in_text) {
      lines.back() += json["text"].get<std::string>();
    } else if (is_piece) {
      lines.push_back(Cat("piece ", json["text"].get<std::string>()));
    } else {
      lines.push_back(Cat(event.name, " ", DumpJson(json)));
    }
    in_text = is_piece;
  }
  return lines;
}

uint64_t NumberOf(const Event& event) {
  return (*ParseJson(event.json))["n"].get<uint64_t>();
}

TEST(BlockFormatTest, OpensGrowsAndCloses) {
  PlainFormat format(Info());
  std::vector<Event> events = format.Begin({});
  Delta delta;
  delta.AddReasoning("hm");
  delta.AddText("so");
  delta.AddCall({0, "call_0", "f", "{}"});
  delta.finish = FinishReason::kStop;
  delta.called = true;
  for (Event& event : format.Chunks(0, delta, {})) events.push_back(event);
  for (Event& event : format.End({})) events.push_back(event);
  EXPECT_THAT(
      Joined(events),
      ElementsAre("hello {}", "ready {}",
                  R"(open {"kind":"reasoning","name":""})",
                  R"(part {"index":0})", "piece hm",
                  R"(close {"text":"hm","cut":false})",
                  R"(open {"kind":"text","name":""})", R"(part {"index":1})",
                  "piece so", R"(close {"text":"so","cut":false})",
                  R"(open {"kind":"call","name":"f"})", R"(part {"index":2})",
                  "piece {}", R"(close {"text":"{}","cut":false})",
                  R"(end {"blocks":3,"called":true})", "bye {}"));
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(NumberOf(events[i]), i);
    EXPECT_FALSE(events[i].id.empty());
  }
}

// A delta of four tokens: two of reasoning, two of text.
Delta WithTokens() {
  Delta delta;
  for (TokenId id = 1; id <= 4; ++id) {
    if (id <= 2) delta.AddReasoning("r");
    if (id > 2) delta.AddText("t");
    ++delta.runs.back().tokens;
    TokenResult result;
    result.token = id;
    delta.logprobs.push_back(std::move(result));
  }
  return delta;
}

TEST(BlockFormatTest, LogProbabilitiesAreThoseOfTheText) {
  PlainFormat format(Info());
  format.Begin({});
  std::vector<std::string> pieces;
  std::string last_id;
  for (const Event& event : format.Chunks(0, WithTokens(), {})) {
    if (event.name == "piece") pieces.push_back(event.json);
    last_id = event.id;
  }
  EXPECT_THAT(pieces, ElementsAre(R"({"text":"rr","n":4})",
                                  R"({"text":"tt","ids":[3,4],"n":8})"));
  // Told once, also where the stream goes on with more of them at once.
  const auto id = ParseEventId(last_id);
  ASSERT_TRUE(id.ok()) << id.status();
  PlainFormat again(Info(id->progress));
  again.Begin({});
  Delta delta = WithTokens();
  delta.AddText("u");
  ++delta.runs.back().tokens;
  delta.logprobs.emplace_back().token = 5;
  EXPECT_EQ(again.Chunks(0, delta, {}).at(0).json,
            R"({"text":"u","ids":[5],"n":9})");
}

TEST(BlockFormatTest, AnIdBeyondTheEndIsAnError) {
  StreamProgress told;
  told.choices.resize(1);
  told.choices[0].begun = true;
  told.choices[0].marks = 99;
  PlainFormat format(Info(told));
  format.Begin({});
  Delta delta;
  delta.AddText("so");
  delta.finish = FinishReason::kStop;
  EXPECT_TRUE(format.Chunks(0, delta, {}).size() <= 1);
  EXPECT_EQ(format.End({}).at(0).name, "failed");
}

TEST(BlockFormatTest, TellsOfACutBlockAndOfAFailure) {
  PlainFormat format(Info());
  format.Begin({});
  Delta delta;
  delta.AddText("so");
  format.Chunks(0, delta, {});
  const std::vector<Event> ping = format.Ping();
  EXPECT_EQ(NumberOf(ping.at(0)), 5u);
  http::ApiError error;
  error.message = "lost";
  const std::vector<Event> failed = format.Fail(error);
  EXPECT_EQ(failed.at(0).json, R"({"why":"lost","blocks":1,"n":6})");
  EXPECT_EQ(failed.at(0).id, "");
  PlainFormat other(Info());
  delta.finish = FinishReason::kLength;
  EXPECT_EQ(other.Chunks(0, delta, {}).back().json,
            R"({"text":"so","cut":true,"n":3})");
}

TEST(BlockFormatTest, WholeAnswersAreStreamedOnes) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::vector<Delta> script = BlockScript(random);
    PlainFormat streamed(Info());
    std::vector<std::string> blocks;
    for (const Event& event : Stream(streamed, script, random, 4)) {
      const Json json = *ParseJson(event.json);
      if (event.name == "open") {
        blocks.push_back(Cat(json["kind"].get<std::string>(), " ",
                             json["name"].get<std::string>(), " "));
      } else if (event.name == "piece") {
        blocks.back() += json["text"].get<std::string>();
      }
    }
    PlainFormat whole(Info());
    std::vector<Delta> all(1);
    for (const Delta& delta : script) all[0].Append(delta);
    EXPECT_EQ(*ParseJson(whole.Whole(all, {})), Json(blocks));
  }
}

TEST(BlockFormatTest, GoesOnBehindAnyEvent) {
  std::mt19937 random(5);
  for (int round = 0; round < 30; ++round) {
    const bool hides = round % 2 == 1;
    const std::vector<Delta> script = BlockScript(random);
    PlainFormat format(Info(), hides);
    const std::vector<Event> events = Stream(format, script, random, 5);
    for (size_t told = 1; told <= events.size(); ++told) {
      const auto id = ParseEventId(events[told - 1].id);
      ASSERT_TRUE(id.ok()) << id.status();
      PlainFormat again(Info(id->progress), hides);
      EXPECT_EQ(again.is_whole(), told == events.size());
      const std::vector<Event> rest = Stream(again, script, random, 5);
      std::vector<Event> both(events.begin(),
                              events.begin() + static_cast<int>(told));
      both.insert(both.end(), rest.begin(), rest.end());
      EXPECT_EQ(Joined(both), Joined(events)) << "behind event " << told;
      if (!rest.empty()) {
        EXPECT_EQ(NumberOf(rest.front()), told);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::serving
