// From raw stamps to parts that follow each other: sums, order, and holes.
#include "common/trace/trace_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string_view>

#include "common/base/json.h"
#include "common/trace/chrome_trace.h"
#include "common/trace/trace_json.h"
#include "tests/trace/trace_records.h"

namespace sluice::trace {
namespace {

using ::testing::HasSubstr;

void ExpectNoOverlap(const ChoicePath& path) {
  int64_t path_end = 0;
  for (const TokenPath& token : path.tokens) {
    int64_t last = 0;
    for (size_t i = 0; i < token.parts.size(); ++i) {
      const TracePart& part = token.parts[i];
      EXPECT_LE(part.start_ns, part.stop_ns) << part.name;
      EXPECT_GE(part.start_ns, last) << part.name;
      last = part.stop_ns;
      if (i >= token.num_on_path) continue;
      EXPECT_GE(part.start_ns, path_end) << part.name;
      path_end = part.stop_ns;
    }
  }
}

TEST(TracePathTest, PartsSumToTheWallTimeLessTheGapsBetweenReadings) {
  for (const int stages : {1, 2, 3}) {
    const TraceRecord record = MakeRecord(stages, 50);
    const ChoicePath path = MakePath(record, 0);
    ExpectNoOverlap(path);
    ASSERT_EQ(path.tokens.size(), 50u);
    EXPECT_EQ(path.wall_ns(), record.end_ns() - record.begin_ns());
    EXPECT_LE(path.sum_ns(), path.wall_ns());
    EXPECT_GE(path.sum_ns(), path.wall_ns() * 95 / 100)
        << "1 us between any two of the readings, and no more";
  }
}

TEST(TracePathTest, EveryPartIsWhereItWasMeasured) {
  const TraceRecord record = MakeRecord(2, 3);
  const ChoicePath path = MakePath(record, 0);
  const auto total = [&](std::string_view name, TracePlace place) {
    int64_t sum = 0;
    for (const TracePart& part : path.tokens[1].parts) {
      if (part.name == name && part.place == place) {
        sum += part.stop_ns - part.start_ns;
      }
    }
    return sum / 1000;
  };
  EXPECT_EQ(total("compute", {TracePlace::kStage, 0}), 100);
  EXPECT_EQ(total("compute", {TracePlace::kStage, 1}), 200);
  EXPECT_EQ(total("sample", {TracePlace::kStage, 0}), 0);
  EXPECT_EQ(total("sample", {TracePlace::kStage, 1}), 9);
  for (const int hop : {0, 1, 2}) {
    EXPECT_EQ(total("wire", {TracePlace::kHop, hop}), 42) << hop;
  }
  EXPECT_EQ(total("plan", {TracePlace::kGateway, 0}), 5);
  EXPECT_EQ(total("commit", {TracePlace::kGateway, 0}), 3);
  EXPECT_EQ(total("write", {TracePlace::kGateway, 0}), 20);
  EXPECT_EQ(total("queue", {TracePlace::kGateway, 0}), 0)
      << "the first token's alone";
  const TokenPath& middle = path.tokens[1];
  EXPECT_EQ(middle.parts[middle.num_on_path - 1].name, "commit")
      << "what carries a token to the client runs beside the next step";
  const TokenPath& last = path.tokens[2];
  EXPECT_EQ(last.num_on_path, last.parts.size());
}

TEST(TracePathTest, ABlockThatIsWrittenWhereItIsMadeEndsThePath) {
  TraceRecord record = MakeRecord(1, 3);
  const auto& deliveries = record.choices[0].deliveries;
  ASSERT_EQ(record.blocks.size(), deliveries.size());
  int64_t begin = 0;
  for (size_t i = 0; i < deliveries.size(); ++i) {
    begin = deliveries[i].decoded_ns + 1000;
    record.blocks[i] = {{begin, begin}, {begin, begin + 3000}};
    ASSERT_LT(begin + 3000, deliveries[i].sent_ns);
  }
  const ChoicePath path = MakePath(record, 0);
  ExpectNoOverlap(path);
  const std::vector<TracePart>& parts = path.tokens.back().parts;
  EXPECT_EQ(parts.back().name, "write");
  EXPECT_EQ(parts[parts.size() - 2].name, "format");
  EXPECT_EQ(parts[parts.size() - 2].stop_ns, begin);
}

TEST(TracePathTest, AStepWhoseTraceIsMissingLeavesAHole) {
  TraceRecord record = MakeRecord(2, 5);
  TraceRecord::Choice& choice = record.choices[0];
  const ChoicePath whole = MakePath(record, 0);
  EXPECT_EQ(whole.num_incomplete(), 0);
  const StepTrace lost = *choice.steps[2].trace;
  choice.steps.erase(choice.steps.begin() + 2);
  for (size_t i = 2; i < choice.deliveries.size(); ++i) {
    --choice.deliveries[i].steps;
  }
  const ChoicePath path = MakePath(record, 0);
  ExpectNoOverlap(path);
  ASSERT_EQ(path.tokens.size(), 5u);
  EXPECT_EQ(path.wall_ns(), whole.wall_ns());
  EXPECT_LE(path.sum_ns(), whole.sum_ns() * 9 / 10);
  EXPECT_TRUE(path.tokens[2].incomplete);
  EXPECT_TRUE(path.tokens[3].incomplete) << "its wait began in the hole";
  for (const size_t i : {0, 1, 4}) EXPECT_FALSE(path.tokens[i].incomplete);
  for (const TokenPath& token : path.tokens) {
    for (const TracePart& part : token.parts) {
      EXPECT_FALSE(part.start_ns <= lost.plan.start_ns &&
                   part.stop_ns >= lost.commit.stop_ns)
          << part.name << " covers the step";
    }
  }
  EXPECT_THAT(TraceJson(record), HasSubstr("\"incomplete\":true"));
}

// Removes step `index` from the record, as if its trace had been lost.
void LoseStep(size_t index, TraceRecord& record) {
  TraceRecord::Choice& choice = record.choices[0];
  choice.steps.erase(choice.steps.begin() + static_cast<ptrdiff_t>(index));
  for (TraceRecord::Delivery& delivery : choice.deliveries) {
    if (delivery.steps > index) --delivery.steps;
  }
}

// Makes the first token one of two chunks of a prompt, of which the first is
// its own step.
TraceRecord MakeChunkedRecord() {
  TraceRecord record = MakeRecord(2, 4);
  record.choices[0].steps[0].chunk = {SequenceId(1), 0, 1, false};
  record.choices[0].deliveries.erase(record.choices[0].deliveries.begin());
  record.blocks.erase(record.blocks.begin());
  EXPECT_EQ(MakePath(record, 0).num_incomplete(), 0);
  return record;
}

bool HasPart(const TokenPath& token, std::string_view name) {
  for (const TracePart& part : token.parts) {
    if (part.name == name) return true;
  }
  return false;
}

TEST(TracePathTest, AFirstStepThatIsMissingIsNoQueue) {
  TraceRecord record = MakeChunkedRecord();
  ASSERT_TRUE(HasPart(MakePath(record, 0).tokens[0], "queue"));
  LoseStep(0, record);
  const ChoicePath path = MakePath(record, 0);
  EXPECT_TRUE(path.tokens[0].incomplete);
  EXPECT_FALSE(HasPart(path.tokens[0], "queue"));
  EXPECT_EQ(path.num_incomplete(), 1);
  // Unless the cache had what it computed.
  record.choices[0].deliveries.back().cached_tokens = 1;
  EXPECT_EQ(MakePath(record, 0).num_incomplete(), 0);
}

TEST(TracePathTest, AChunkThatIsMissingBesideOthersIsFound) {
  // The chunks run beside each other; the chain has the last of them alone.
  TraceRecord record = MakeRecord(1, 1);
  TraceRecord::Choice& choice = record.choices[0];
  const TraceRecord::Step last = choice.steps[0];
  choice.steps = {{last.trace, {SequenceId(1), 0, 16, false}},
                  {last.trace, {SequenceId(1), 16, 16, false}},
                  {last.trace, {SequenceId(1), 32, 16, true}}};
  for (auto& delivery : choice.deliveries) delivery.steps = 3;
  EXPECT_EQ(MakePath(record, 0).num_incomplete(), 0);
  LoseStep(1, record);
  const ChoicePath path = MakePath(record, 0);
  EXPECT_EQ(path.num_incomplete(), 1);
  EXPECT_FALSE(HasPart(path.tokens[0], "queue"));
}

TEST(TracePathTest, ATokenBehindAStepThatDrewNoneHasLostItsOwn) {
  TraceRecord record = MakeChunkedRecord();
  LoseStep(1, record);
  const ChoicePath path = MakePath(record, 0);
  EXPECT_TRUE(path.tokens[0].incomplete);
  EXPECT_FALSE(HasPart(path.tokens[0], "emit")) << "it would begin too early";
  EXPECT_TRUE(path.tokens[1].incomplete) << "its wait began in the hole";
  EXPECT_EQ(path.num_incomplete(), 2);
}

TEST(TracePathTest, AnEndTokenWhoseStepIsMissingIsFound) {
  TraceRecord record = MakeRecord(1, 2);
  TraceRecord::Choice& choice = record.choices[0];
  Stamps stamps(choice.steps.back().trace->commit.stop_ns);
  choice.steps.push_back({Step(1, stamps), {SequenceId(1), 2, 1, true}});
  choice.deliveries.pop_back();
  record.blocks.pop_back();
  choice.deliveries.push_back(Deliver(3, 0, stamps, record));
  choice.deliveries.back().has_end_token = true;
  EXPECT_EQ(MakePath(record, 0).num_incomplete(), 0);
  LoseStep(2, record);
  const ChoicePath path = MakePath(record, 0);
  ExpectNoOverlap(path);
  ASSERT_EQ(path.tokens.size(), 3u);
  EXPECT_TRUE(path.tokens[2].incomplete);
  EXPECT_FALSE(HasPart(path.tokens[2], "end_wait"));
  EXPECT_EQ(path.num_incomplete(), 1);
}

TEST(TracePathTest, AStepThatAPartIsMissingFromIsFound) {
  const auto incomplete_without = [](auto remove) {
    TraceRecord record = MakeRecord(2, 3);
    StepTrace step = *record.choices[0].steps[1].trace;
    remove(step);
    record.choices[0].steps[1].trace = std::make_shared<StepTrace>(step);
    const ChoicePath path = MakePath(record, 0);
    ExpectNoOverlap(path);
    EXPECT_THAT(TraceJson(record), HasSubstr("\"incomplete_tokens\":1"));
    EXPECT_THAT(ChromeTrace(record), HasSubstr("token 1 (incomplete)"));
    return path.num_incomplete() == 1 && path.tokens[1].incomplete;
  };
  for (TraceSpan StepTrace::*part :
       {&StepTrace::plan, &StepTrace::serialise, &StepTrace::receive,
        &StepTrace::inbox, &StepTrace::commit}) {
    EXPECT_TRUE(
        incomplete_without([part](StepTrace& step) { step.*part = {}; }));
  }
  for (const size_t stage : {0u, 1u}) {
    for (TraceSpan StageTrace::*part :
         {&StageTrace::receive, &StageTrace::wait, &StageTrace::compute,
          &StageTrace::serialise}) {
      EXPECT_TRUE(incomplete_without(
          [=](StepTrace& step) { step.stages[stage].*part = {}; }));
    }
  }
  EXPECT_TRUE(
      incomplete_without([](StepTrace& step) { step.stages[1].sample = {}; }));
  EXPECT_TRUE(
      incomplete_without([](StepTrace& step) { step.stages.pop_back(); }));
}

TEST(TracePathTest, StepsThatRunBesideEachOtherCountOnce) {
  // Three chunks of a prompt; the second is planned while the first is under
  // way, the third after the first was committed.
  TraceRecord record = MakeRecord(1, 1);
  TraceRecord::Choice& choice = record.choices[0];
  const auto shifted = [&](int64_t micros) {
    auto step = std::make_shared<StepTrace>(*choice.steps[0].trace);
    for (TraceSpan* span : {&step->plan, &step->serialise, &step->receive,
                            &step->inbox, &step->commit}) {
      span->start_ns += micros * 1000;
      span->stop_ns += micros * 1000;
    }
    for (TraceSpan* span : {&step->stages[0].receive, &step->stages[0].wait,
                            &step->stages[0].compute, &step->stages[0].sample,
                            &step->stages[0].serialise}) {
      span->start_ns += micros * 1000;
      span->stop_ns += micros * 1000;
    }
    return step;
  };
  const int64_t length = (choice.steps[0].trace->commit.stop_ns -
                          choice.steps[0].trace->plan.start_ns) /
                         1000;
  choice.steps.push_back({shifted(length / 2), {}});
  choice.steps.push_back({shifted(length + 1), {}});
  record.blocks.clear();
  choice.deliveries.clear();
  Stamps stamps(choice.steps[2].trace->commit.stop_ns);
  choice.deliveries.push_back(Deliver(3, 1, stamps, record));
  const ChoicePath path = MakePath(record, 0);
  ASSERT_EQ(path.tokens.size(), 1u);
  ExpectNoOverlap(path);
  int plans = 0;
  for (const TracePart& part : path.tokens[0].parts)
    plans += part.name == "plan";
  EXPECT_EQ(plans, 2);
  EXPECT_FALSE(path.tokens[0].beside.empty());
}

TEST(TracePathTest, AStepThatWentAheadCountsFromTheTokenBefore) {
  TraceRecord record = MakeRecord(1, 3);
  auto& steps = record.choices[0].steps;
  const int64_t wall = MakePath(record, 0).wall_ns();
  const int64_t known = steps[0].trace->commit.stop_ns;
  auto ahead = std::make_shared<StepTrace>(*steps[1].trace);
  StageTrace& stage = ahead->stages[0];
  const int64_t sooner = stage.compute.start_ns - known + 20000;
  for (TraceSpan* span :
       {&ahead->plan, &ahead->serialise, &stage.receive, &stage.wait}) {
    span->start_ns -= sooner;
    span->stop_ns -= sooner;
  }
  stage.compute.start_ns -= sooner;
  steps[1].trace = ahead;
  const ChoicePath path = MakePath(record, 0);
  ExpectNoOverlap(path);
  EXPECT_EQ(path.num_incomplete(), 0);
  EXPECT_EQ(path.wall_ns(), wall);
  EXPECT_GE(path.sum_ns(), wall * 95 / 100);
  EXPECT_EQ(path.tokens[1].parts.front().name, "compute");
  EXPECT_EQ(path.tokens[1].parts.front().start_ns, known);
}

TEST(TracePathTest, AnEndWithoutATokenIsAPathOfItsOwn) {
  TraceRecord record = MakeRecord(1, 2);
  TraceRecord::Choice& choice = record.choices[0];
  Stamps stamps(choice.steps.back().trace->commit.stop_ns);
  choice.steps.push_back({Step(1, stamps), {}});  // gives an end token
  choice.deliveries.pop_back();
  record.blocks.pop_back();
  choice.deliveries.push_back(Deliver(3, 0, stamps, record));
  const ChoicePath path = MakePath(record, 0);
  ASSERT_EQ(path.tokens.size(), 3u);
  EXPECT_EQ(path.tokens[2].num_tokens, 0);
  ExpectNoOverlap(path);
  EXPECT_EQ(path.wall_ns(), record.end_ns() - record.begin_ns());
}

TEST(TracePathTest, ARequestThatFailedEarlyHasNoTokens) {
  TraceRecord record;
  record.read = {10, 20};
  record.choices.resize(1);
  EXPECT_TRUE(MakePath(record, 0).tokens.empty());
  EXPECT_EQ(MakePath(record, 0).wall_ns(), 0);
  EXPECT_TRUE(ParseJson(TraceJson(record)).ok());
  EXPECT_TRUE(ParseJson(ChromeTrace(record)).ok());
}

}  // namespace
}  // namespace sluice::trace
