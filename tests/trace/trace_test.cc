// How traces are shown and kept: JSON, Chrome's format, the store.
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
#include "common/trace/chrome_trace.h"
#include "common/trace/trace_json.h"
#include "common/trace/trace_store.h"
#include "tests/trace/trace_records.h"

namespace sluice::trace {
namespace {

using ::testing::HasSubstr;

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
class QuietExchange : public http::Exchange {
 public:
  http::HttpRequest& request() override { return request_; }
  void Post(std::function<void()>) override {}
  void PostAfter(Duration, std::function<void()>) override {}
  void Send(http::HttpResponse) override {}
  void BeginStream(http::HttpResponse) override {}
  void SendChunk(std::string) override {}
  void EndStream() override {}
  void OnGone(std::function<void(http::Gone)>) override {}
  void Observe(std::shared_ptr<http::WriteObserver> observer) override {
    observer_ = std::move(observer);
  }
  void set_route(std::string_view) override {}

  http::HttpRequest request_;
  std::shared_ptr<http::WriteObserver> observer_;
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

TEST(TraceStoreTest, TheExportGetsWhatIsTracedAndWhatItWants) {
  std::vector<std::string> taken;
  const TraceExport exported = {
      [](std::string_view traceparent) { return !traceparent.empty(); },
      [&](std::shared_ptr<const TraceRecord> record, size_t bytes) {
        EXPECT_GT(bytes, sizeof(TraceRecord));
        EXPECT_EQ(record->request.path, "/v1/completions");
        EXPECT_EQ(record->answer.status, 503);
        EXPECT_EQ(record->answer.figures.prompt_tokens, 7);
        taken.push_back(record->request_id);
      }};
  TraceStore store({}, NoStages, exported);
  const auto run = [&](const char* id, const char* header,
                       const char* traceparent) {
    QuietExchange exchange;
    exchange.request_.request_id = id;
    exchange.request_.path = "/v1/completions";
    exchange.request_.traceparent = traceparent;
    exchange.figures().prompt_tokens = 7;
    const auto trace = store.Begin(header, exchange);
    if (trace == nullptr) return;
    trace->OnWritten({1, 2}, {2, 3});
    trace->OnClosed({503, "server_error", &exchange.figures()});
  };
  run("asked", "1", "");
  run("wanted", "", "parent");
  run("neither", "", "");
  run("never", "0", "parent");
  EXPECT_EQ(taken, (std::vector<std::string>{"asked", "wanted"}));
  EXPECT_TRUE(store.Find("asked", "").ok());
  EXPECT_FALSE(store.Find("wanted", "").ok()) << "for the export alone";
}

TEST(TraceStoreTest, KeepsFinishedTracesUntilLaterOnesNeedTheRoom) {
  TraceStore store({.max_bytes = 2000}, NoStages);
  for (int i = 0; i < 100; ++i) {
    QuietExchange exchange;
    exchange.request_.request_id = Cat("r", i);
    const auto trace = store.Begin("1", exchange);
    EXPECT_FALSE(store.Find(Cat("r", i), "").ok()) << "not finished";
    trace->OnClosed({});
    trace->OnClosed({});
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
    trace->OnClosed({});
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
  store.Begin("1", exchange)->OnClosed({});
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
  trace.OnClosed({});
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
  trace.OnClosed({});
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
    store.Begin("1", exchange)->OnClosed({});
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
      store.Begin("1", exchange)->OnClosed({});
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
    store.Begin("1", exchange)->OnClosed({});
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
}  // namespace sluice::trace
