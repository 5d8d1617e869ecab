// Traces from synthetic stamps: sums, order, JSON, Chrome's format, the store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "services/gateway/trace/chrome_trace.h"
#include "services/gateway/trace/trace_json.h"
#include "services/gateway/trace/trace_path.h"
#include "services/gateway/trace/trace_store.h"

namespace sluice::gateway {
namespace {

using ::testing::HasSubstr;

// Gives out spans that follow each other, with 1 us between any two.
class Stamps {
 public:
  explicit Stamps(int64_t now_ns) : now_ns_(now_ns) {}
  TraceSpan Next(int64_t micros) {
    now_ns_ += 1000;
    const TraceSpan span = {now_ns_, now_ns_ + 1000 * micros};
    now_ns_ = span.stop_ns;
    return span;
  }
  int64_t now_ns() const { return now_ns_; }
  void set_now(int64_t ns) { now_ns_ = ns; }

 private:
  int64_t now_ns_;
};

std::shared_ptr<const StepTrace> Step(int stages, Stamps& stamps) {
  auto step = std::make_shared<StepTrace>();
  step->plan = stamps.Next(5);
  step->serialise = stamps.Next(3);
  for (int i = 0; i < stages; ++i) {
    stamps.Next(40);  // the wire
    StageTrace& stage = step->stages.emplace_back();
    stage.receive = stamps.Next(4);
    stage.wait = stamps.Next(2);
    stage.compute = stamps.Next(100 * (i + 1));
    if (i + 1 == stages) stage.sample = stamps.Next(9);
    stage.serialise = stamps.Next(6);
  }
  stamps.Next(40);
  step->receive = stamps.Next(7);
  step->inbox = stamps.Next(8);
  step->commit = stamps.Next(3);
  return step;
}

// What follows a commit, beside the next step.
TraceRecord::Delivery Deliver(size_t steps, int32_t tokens, Stamps stamps,
                              TraceRecord& record) {
  TraceRecord::Delivery delivery;
  delivery.steps = steps;
  delivery.num_tokens = tokens;
  delivery.is_end = tokens == 0;
  delivery.posted_ns = stamps.Next(2).stop_ns;
  delivery.begin_ns = stamps.Next(10).stop_ns;
  delivery.decoded_ns = stamps.Next(4).stop_ns;
  delivery.sent_ns = stamps.Next(6).stop_ns;
  const int64_t begin = delivery.sent_ns + 5000;
  record.blocks.push_back(
      {{delivery.sent_ns - 500, begin}, {begin, begin + 20000}});
  return delivery;
}

// A streamed answer of `tokens` tokens over `stages` stages.
TraceRecord MakeRecord(int stages, int tokens) {
  TraceRecord record;
  record.request_id = "abc";
  Stamps stamps(1000000000);
  record.read = stamps.Next(50);
  record.prepare_wait = {record.read.stop_ns, record.read.stop_ns + 1000};
  record.prepare = stamps.Next(80);
  record.start_wait = {record.prepare.stop_ns, record.prepare.stop_ns + 1000};
  TraceRecord::Choice& choice = record.choices.emplace_back();
  stamps.Next(1);
  choice.submit_ns = stamps.now_ns();
  choice.inbox = stamps.Next(12);
  stamps.Next(30);  // the queue
  for (int t = 0; t < tokens; ++t) {
    choice.steps.push_back({Step(stages, stamps), {}});
    choice.deliveries.push_back(
        Deliver(choice.steps.size(), 1, stamps, record));
  }
  stamps.set_now(choice.deliveries.back().sent_ns);
  choice.deliveries.push_back(Deliver(choice.steps.size(), 0, stamps, record));
  for (int i = 0; i < stages; ++i) {
    record.stages.push_back({Cat("127.0.0.1:", i), i, i + 1, 100, 5, 50});
  }
  return record;
}

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

TEST(TracePathTest, AStepWhoseTraceIsMissingLeavesAHole) {
  TraceRecord record = MakeRecord(2, 5);
  TraceRecord::Choice& choice = record.choices[0];
  for (size_t i = 0; i < choice.steps.size(); ++i) {
    choice.steps[i].chunk.start = static_cast<int32_t>(i);
    choice.steps[i].chunk.count = 1;
  }
  const ChoicePath whole = MakePath(record, 0);
  for (const TokenPath& token : whole.tokens) EXPECT_FALSE(token.incomplete);
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

TEST(TraceJsonTest, TellsTotalsTokensAndClocks) {
  const auto json = ParseJson(TraceJson(MakeRecord(2, 4)));
  ASSERT_TRUE(json.ok());
  const Json& choice = (*json)["choices"][0];
  EXPECT_EQ((*json)["request_id"], "abc");
  EXPECT_EQ(choice["tokens"].size(), 4u);
  EXPECT_EQ((*json)["stages"][1]["clock_error_us"], 0.05);
  EXPECT_DOUBLE_EQ((*json)["wall_us"], choice["wall_us"]);
  double sum = 0;
  for (const Json& row : choice["summary"]) sum += double{row["total_us"]};
  EXPECT_NEAR(sum, double{choice["sum_us"]}, 0.01);
  EXPECT_EQ(choice["tokens"][0]["parts"][0]["part"], "read");
  EXPECT_EQ(choice["tokens"][0]["parts"][0]["start_us"], 0.0);
}

TEST(ChromeTraceTest, SlicesOfATrackNestOrFollowEachOther) {
  const auto json = ParseJson(ChromeTrace(MakeRecord(3, 20)));
  ASSERT_TRUE(json.ok());
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  std::set<std::pair<int, int>> named;
  for (const Json& event : (*json)["traceEvents"]) {
    const std::pair<int, int> track = {event["pid"], event["tid"]};
    if (event["ph"] == "M") {
      named.insert(track);
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    EXPECT_GE(double{event["dur"]}, 0);
    tracks[track].emplace_back(event["ts"], event["dur"]);
  }
  EXPECT_GT(tracks.size(), 10u);
  for (auto& [track, slices] : tracks) {
    EXPECT_EQ(named.count(track), 1u);
    std::sort(slices.begin(), slices.end(), [](auto a, auto b) {
      return std::pair(a.first, -a.second) < std::pair(b.first, -b.second);
    });
    std::vector<double> open;
    for (const auto& [ts, dur] : slices) {
      while (!open.empty() && open.back() <= ts + 0.001) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(ts + dur, open.back() + 0.001);
      }
      open.push_back(ts + dur);
    }
  }
}

// An exchange that is only asked for its request and told of its observer.
class QuietExchange : public Exchange {
 public:
  HttpRequest& request() override { return request_; }
  void Post(std::function<void()>) override {}
  void Send(HttpResponse) override {}
  void BeginStream(HttpResponse) override {}
  void SendChunk(std::string) override {}
  void EndStream() override {}
  void OnGone(std::function<void(Gone)>) override {}
  void Observe(std::shared_ptr<WriteObserver> observer) override {
    observer_ = std::move(observer);
  }
  void set_route(std::string_view) override {}

  HttpRequest request_;
  std::shared_ptr<WriteObserver> observer_;
};

std::vector<TraceRecord::Stage> NoStages() { return {}; }

TEST(TraceStoreTest, TracesWhatAsksForItAndTheSampledShare) {
  TraceStore none({}, NoStages);
  TraceStore all({.sample = 1}, NoStages);
  QuietExchange exchange;
  EXPECT_EQ(none.Begin("", exchange), nullptr);
  EXPECT_EQ(none.Begin("0", exchange), nullptr);
  EXPECT_EQ(all.Begin("0", exchange), nullptr);
  EXPECT_EQ(exchange.observer_, nullptr);
  EXPECT_NE(all.Begin("", exchange), nullptr);
  EXPECT_NE(none.Begin("1", exchange), nullptr);
  EXPECT_NE(exchange.observer_, nullptr);
}

TEST(TraceStoreTest, KeepsFinishedTracesUntilLaterOnesNeedTheRoom) {
  TraceStore store({.max_bytes = 2000}, NoStages);
  for (int i = 0; i < 100; ++i) {
    QuietExchange exchange;
    exchange.request_.request_id = Cat("r", i);
    const auto trace = store.Begin("1", exchange);
    EXPECT_FALSE(store.Find(Cat("r", i), "").ok()) << "not finished";
    trace->OnClosed();
    trace->OnClosed();
    ASSERT_TRUE(store.Find(Cat("r", i), "").ok());
  }
  EXPECT_FALSE(store.Find("r0", "").ok());
  EXPECT_EQ(store.RequestIds("").front(), "r99");
  EXPECT_LT(store.RequestIds("").size(), 20u);
}

TEST(TraceStoreTest, ATraceLargerThanTheRoomIsNotKeptAndSaysSo) {
  TraceStore store({.max_bytes = 4000}, NoStages);
  for (const char* id : {"small", "large"}) {
    QuietExchange exchange;
    exchange.request_.request_id = id;
    const auto trace = store.Begin("1", exchange);
    for (int i = 0; i < (id[0] == 'l' ? 1000 : 1); ++i) {
      trace->OnWritten({1, 2}, {2, 3});
    }
    trace->OnClosed();
  }
  EXPECT_THAT(Message(store.Find("large", "").status()),
              HasSubstr("more than the 4000"));
  EXPECT_EQ(store.Find("large", "").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(store.Find("small", "").ok()) << "it does not give way";
}

TEST(TraceStoreTest, ATraceIsToldToItsOwnTenantOnly) {
  TraceStore store({}, NoStages);
  QuietExchange exchange;
  exchange.request_.request_id = "mine";
  exchange.request_.tenant = "alice";
  store.Begin("1", exchange)->OnClosed();
  EXPECT_TRUE(store.Find("mine", "alice").ok());
  for (const char* other : {"bob", ""}) {
    EXPECT_EQ(Message(store.Find("mine", other).status()),
              Message(TraceStore({}, NoStages).Find("mine", "").status()))
        << "nor that there is one";
    EXPECT_TRUE(store.RequestIds(other).empty());
  }
  EXPECT_EQ(store.RequestIds("alice").size(), 1u);
}

TEST(RequestTraceTest, CapsARecordAndTruncatesTheChoiceConcernedAlone) {
  TraceRecord record;
  RequestTrace trace("id", "", TimePoint(),
                     [&](TraceRecord done) { record = std::move(done); });
  trace.OnStart(2);
  const auto step = std::make_shared<const StepTrace>();
  TraceRecord::Delivery delivery;
  delivery.num_tokens = 1;
  delivery.steps = 1;
  trace.OnStep(0, step, {});
  trace.OnDelivery(0, delivery);
  const size_t more = 3 * RequestTrace::kMaxBlocks;
  for (size_t i = 1; i <= more; ++i) {
    const auto ns = static_cast<int64_t>(i);
    trace.OnStep(1, step, {});
    delivery.steps = i;
    trace.OnDelivery(1, delivery);
    trace.OnWritten({ns, ns}, {ns, ns});
  }
  trace.OnClosed();
  EXPECT_TRUE(record.truncated);
  EXPECT_FALSE(record.choices[0].truncated);
  EXPECT_TRUE(record.choices[1].truncated);
  EXPECT_EQ(record.choices[1].steps.size(), RequestTrace::kMaxSteps - 1);
  EXPECT_EQ(record.choices[1].deliveries.size(), RequestTrace::kMaxSteps - 1);
  EXPECT_EQ(record.blocks.size(), RequestTrace::kMaxBlocks);
  EXPECT_EQ(record.end_ns(), static_cast<int64_t>(more)) << "the last byte";
  const auto json = ParseJson(TraceJson(record));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["truncated"], true);
  EXPECT_EQ((*json)["choices"][0]["truncated"], false);
  EXPECT_EQ((*json)["choices"][1]["truncated"], true);
}

TEST(RequestTraceTest, DeliveriesWithoutStepsAreCappedToo) {
  TraceRecord record;
  RequestTrace trace("id", "", TimePoint(),
                     [&](TraceRecord done) { record = std::move(done); });
  trace.OnStart(1);
  for (size_t i = 0; i < 2 * RequestTrace::kMaxDeliveries; ++i) {
    trace.OnDelivery(0, {});
  }
  trace.OnClosed();
  EXPECT_EQ(record.choices[0].deliveries.size(), RequestTrace::kMaxDeliveries);
  EXPECT_TRUE(record.choices[0].truncated);
}

TEST(TraceStoreTest, WritesFilesThatAreWhole) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "traces";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  TraceStore store({.folder = folder.string(), .max_files = 2}, NoStages);
  for (const char* id : {"a", "b", "c"}) {
    QuietExchange exchange;
    exchange.request_.request_id = id;
    store.Begin("1", exchange)->OnClosed();
  }
  store.Stop();
  EXPECT_TRUE(std::filesystem::exists(folder / "b.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "c.json")) << "the limit";
  std::ifstream in(folder / "a.json");
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_TRUE(ParseJson(text.str()).ok());
}

TEST(TraceStoreTest, ARepeatedIdOverwritesNoFile) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "again";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (int run = 0; run < 2; ++run) {
    TraceStore store({.folder = folder.string()}, NoStages);
    for (int i = 0; i < 2; ++i) {
      QuietExchange exchange;
      exchange.request_.request_id = "same";
      store.Begin("1", exchange)->OnClosed();
    }
    store.Stop();
  }
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  EXPECT_EQ(names, (std::set<std::string>{"same.json", "same~2.json",
                                          "same~3.json", "same~4.json"}));
}

TEST(TraceStoreTest, TheFilesBytesAreBounded) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "bounded";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  constexpr size_t kMaxBytes = 1000;
  TraceStore store({.folder = folder.string(), .max_file_bytes = kMaxBytes},
                   NoStages);
  for (int i = 0; i < 15; ++i) {
    QuietExchange exchange;
    exchange.request_.request_id = Cat("r", i);
    store.Begin("1", exchange)->OnClosed();
  }
  store.Stop();
  size_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    bytes += entry.file_size();
  }
  EXPECT_GT(bytes, 0u);
  EXPECT_LE(bytes, kMaxBytes);
}

TEST(TraceOptionsTest, RefuseSharesAndFoldersThatCannotBe) {
  EXPECT_TRUE(Validate(TraceOptions()).ok());
  EXPECT_FALSE(Validate(TraceOptions{.sample = 1.5}).ok());
  EXPECT_FALSE(Validate(TraceOptions{.sample = -0.1}).ok());
  const Status status = Validate(TraceOptions{.folder = "/nowhere/at/all"});
  EXPECT_THAT(Message(status), HasSubstr("/nowhere/at/all"));
}

}  // namespace
}  // namespace sluice::gateway
