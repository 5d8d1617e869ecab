// From times to figures, and the figures as text and JSON.
#include <gtest/gtest.h>

#include "common/base/json.h"
#include "services/cli/bench/bench_output.h"

namespace sluice::cli {
namespace {

using std::chrono::milliseconds;

const TimePoint kStart = TimePoint() + std::chrono::hours(1);

TimePoint At(int ms) { return kStart + milliseconds(ms); }

// Due at 0, sent 10 ms late; tokens at 100, 120 and two at 160.
load::RequestRecord OneRequest() {
  load::RequestRecord record;
  record.outcome = load::Outcome::kDone;
  record.http_status = 200;
  record.scheduled = At(0);
  record.sent = At(10);
  record.ended = At(165);
  record.arrivals = {{At(100), 1}, {At(120), 1}, {At(160), 2}};
  record.prompt_tokens = 8;
  record.output_tokens = 4;
  record.source = load::TokenSource::kUsage;
  return record;
}

load::RequestRecord Refused() {
  load::RequestRecord record;
  record.index = 1;
  record.outcome = load::Outcome::kRefused;
  record.http_status = 429;
  record.retry_after_s = 2;
  record.error = "429: \"full\", come back";
  record.scheduled = record.sent = At(50);
  record.ended = At(60);
  return record;
}

load::LoadResult SomeResult() {
  load::LoadResult result;
  result.began = At(0);
  result.ended = At(200);
  result.records = {OneRequest(), Refused()};
  return result;
}

BenchOptions SomeOptions() {
  BenchOptions options;
  options.load.base = {"h", "1", ""};
  options.load.num_requests = 2;
  options.workload.model = "m<1>";
  options.service_level = load::ServiceLevel{200, 25, std::nullopt};
  return options;
}

TEST(RequestRecordTest, TimesAreMeasuredFromTheScheduledArrival) {
  const load::RequestRecord record = OneRequest();
  EXPECT_DOUBLE_EQ(record.TimeToFirstToken(), 0.1);
  EXPECT_DOUBLE_EQ(record.Latency(), 0.165);
  EXPECT_DOUBLE_EQ(record.Lateness(), 0.01);
  EXPECT_DOUBLE_EQ(record.TimePerOutputToken(), 0.02);
  EXPECT_DOUBLE_EQ(record.LongestGap(), 0.04);
}

TEST(RequestRecordTest, TokensThatArriveTogetherShareTheirGap) {
  const auto gaps = OneRequest().InterTokenLatencies();
  ASSERT_EQ(gaps.size(), 3u);
  EXPECT_DOUBLE_EQ(gaps[0], 0.02);
  EXPECT_DOUBLE_EQ(gaps[1], 0.02);
  EXPECT_DOUBLE_EQ(gaps[2], 0.02);
}

TEST(BenchSummaryTest, RatesCountWhatHappenedInTheWindow) {
  const BenchOptions options = SomeOptions();
  const load::LoadSummary all =
      load::Summarize(SomeResult(), Duration(0), options.service_level);
  EXPECT_DOUBLE_EQ(all.window_s, 0.2);
  EXPECT_DOUBLE_EQ(all.requests_per_s, 5);
  EXPECT_DOUBLE_EQ(all.output_tokens_per_s, 20);
  EXPECT_DOUBLE_EQ(all.input_tokens_per_s, 40);
  EXPECT_DOUBLE_EQ(*all.goodput_share, 0.5);
  EXPECT_DOUBLE_EQ(all.refused_ms.p50, 10);
  EXPECT_DOUBLE_EQ(all.retry_after_s.mean, 2);
  // 0.125 s: one token of 4 and the prompt.
  const load::LoadSummary part =
      load::Summarize(SomeResult(), milliseconds(125), std::nullopt);
  EXPECT_DOUBLE_EQ(part.window_s, 0.125);
  EXPECT_DOUBLE_EQ(part.output_tokens_per_s, 16);
  EXPECT_DOUBLE_EQ(part.requests_per_s, 0);
  EXPECT_EQ(part.done, 1);
}

TEST(BenchSummaryTest, TokensOfACacheAreNoComputedInput) {
  load::LoadResult result = SomeResult();
  result.records[0].cached_tokens = 6;
  const load::LoadSummary all =
      load::Summarize(result, Duration(0), std::nullopt);
  EXPECT_DOUBLE_EQ(all.input_tokens_per_s, 40);
  EXPECT_DOUBLE_EQ(all.computed_input_tokens_per_s, 10);
}

TEST(BenchSummaryTest, AServiceLevelIsKeptByEveryPartOfIt) {
  EXPECT_TRUE((load::ServiceLevel{100, 20, 165}).IsKeptBy(OneRequest()));
  EXPECT_FALSE((load::ServiceLevel{99, 20, 165}).IsKeptBy(OneRequest()));
  EXPECT_FALSE((load::ServiceLevel{100, 19, 165}).IsKeptBy(OneRequest()));
  EXPECT_FALSE((load::ServiceLevel{100, 20, 164}).IsKeptBy(OneRequest()));
  EXPECT_FALSE(load::ServiceLevel{}.IsKeptBy(Refused()));
}

TEST(BenchOutputTest, JsonHasConfigSummaryAndEveryRequest) {
  const BenchOptions options = SomeOptions();
  const load::LoadResult result = SomeResult();
  const load::LoadSummary summary =
      load::Summarize(result, Duration(0), options.service_level);
  const auto json =
      ParseJson(ResultJson(options, {"random words", false}, summary, result));
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["config"]["model"], "m<1>");
  EXPECT_EQ((*json)["config"]["slo"]["ttft_ms"], 200);
  EXPECT_EQ((*json)["summary"]["ttft_ms"]["p50"], 100);
  EXPECT_EQ((*json)["summary"]["failures"]["refused 429"]["count"], 1);
  ASSERT_EQ((*json)["requests"].size(), 2u);
  EXPECT_EQ((*json)["requests"][0]["itl_ms"].size(), 3u);
  EXPECT_EQ((*json)["requests"][1]["outcome"], "refused");
}

TEST(BenchOutputTest, TheTableTellsWhatCountsAndHowItWasMeasured) {
  const BenchOptions options = SomeOptions();
  const load::LoadSummary summary =
      load::Summarize(SomeResult(), Duration(0), options.service_level);
  const std::string text =
      SummaryText(options, {"random token ids", true}, summary);
  for (const char* part :
       {"1 of 2 requests answered", "exact lengths", "counted by usage",
        "refused 429: 1", "Retry-After of 1 refusals: 2.0 to 2.0 s", "goodput",
        "TTFT", "sent late by"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(ProgressLineTest, ABarShowsTheShareOfTheRequests) {
  load::LoadOptions load;
  load.num_requests = 10;
  load::LoadProgress progress;
  progress.ended = 5;
  progress.elapsed_s = 2;
  const std::string line = ProgressLine(load, progress);
  EXPECT_NE(line.find("[############............]"), std::string::npos) << line;
  EXPECT_NE(line.find("5/10 requests"), std::string::npos);
}

}  // namespace
}  // namespace sluice::cli
