#include "common/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "common/base/build_info.h"
#include "common/base/cat.h"
#include "common/base/log.h"
#include "common/metrics/metric_names.h"
#include "common/metrics/process_metrics.h"
#include "common/metrics/rpc_metrics.h"

namespace sluice::metrics {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsTest, SeriesAppearWithConstantAndOwnLabels) {
  Registry registry({{"model_name", "m"}, {"engine", "0"}});
  registry
      .AddCounter(names::kVllmSuccess, "help", {{"finished_reason", "stop"}})
      .Add(3);
  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("# TYPE vllm:request_success_total counter"));
  EXPECT_THAT(text, HasSubstr("engine=\"0\""));
  EXPECT_THAT(text, HasSubstr("model_name=\"m\""));
  EXPECT_THAT(text, HasSubstr("finished_reason=\"stop\""));
  EXPECT_THAT(text, HasSubstr("} 3\n"));
}

TEST(MetricsTest, ACounterNeverFalls) {
  Registry registry;
  const Counter counter = registry.AddCounter("a_total", "help");
  counter.AdvanceTo(5);
  counter.AdvanceTo(4);
  EXPECT_EQ(counter.value(), 5);
  counter.AdvanceTo(7);
  EXPECT_EQ(counter.value(), 7);
}

TEST(MetricsTest, TheSameNameAndLabelsGiveTheSameSeries) {
  Registry registry;
  registry.AddGauge("g", "help", {{"a", "1"}}).Set(2);
  EXPECT_EQ(registry.AddGauge("g", "help", {{"a", "1"}}).value(), 2);
  EXPECT_EQ(registry.AddGauge("g", "help", {{"a", "2"}}).value(), 0);
}

TEST(MetricsTest, AnEmptyHandleDropsWhatItIsTold) {
  Counter().Add();
  Gauge().Set(1);
  Histogram().Observe(1);
  EXPECT_EQ(Counter().value(), 0);
}

TEST(MetricsTest, HistogramsCountUpToTheirBounds) {
  Registry registry;
  const Histogram histogram =
      registry.AddHistogram("h_seconds", "help", {0.1, 1.0});
  histogram.Observe(0.05);
  histogram.Observe(0.5);
  histogram.Observe(5);
  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("h_seconds_bucket{le=\"0.1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("h_seconds_bucket{le=\"1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("h_seconds_bucket{le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("h_seconds_count 3\n"));
}

TEST(MetricsTest, HooksRunBeforeEachScrape) {
  Registry registry;
  const Gauge gauge = registry.AddGauge("g", "help");
  int scrapes = 0;
  registry.OnScrape([&] { gauge.Set(++scrapes); });
  EXPECT_THAT(registry.Text(), HasSubstr("g 1\n"));
  EXPECT_THAT(registry.Text(), HasSubstr("g 2\n"));
}

TEST(MetricsTest, ARemovedGaugeIsGoneAndItsNamesakesStay) {
  Registry registry;
  const Gauge first = registry.AddGauge("g", "help", {{"size", "1"}});
  const Gauge second = registry.AddGauge("g", "help", {{"size", "2"}});
  first.Set(5);
  second.Set(6);
  registry.RemoveGauge("g", first);
  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("# HELP g help\n"));
  EXPECT_THAT(text, Not(HasSubstr("size=\"1\"")));
  EXPECT_THAT(text, HasSubstr("size=\"2\"} 6\n"));
}

TEST(MetricsTest, ProcessMetricsHaveValues) {
  Registry registry;
  AddProcessMetrics(registry, "test", "portable");
  const std::string text = registry.Text();
  EXPECT_THAT(text, HasSubstr("service=\"test\""));
  EXPECT_THAT(text, ContainsRegex("cuda=\"(none|[0-9]+[.][0-9]+)\""));
  EXPECT_THAT(text, HasSubstr(Cat("version=\"", BuildVersion(), "\"")));
  EXPECT_THAT(text, HasSubstr(Cat("git=\"", BuildCommit(), "\"")));
  EXPECT_TRUE(std::regex_match(std::string(BuildCommit()),
                               std::regex("[0-9a-f]{12}|unknown")))
      << BuildCommit();
  EXPECT_THAT(text, HasSubstr("process_resident_memory_bytes "));
  EXPECT_THAT(text, Not(HasSubstr("process_resident_memory_bytes 0\n")));
  EXPECT_THAT(text, Not(HasSubstr("process_start_time_seconds 0\n")));
  const auto value_of = [&](const std::string& name) {
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos
               ? -1.0
               : std::stod(text.substr(at + name.size() + 2));
  };
  EXPECT_GT(value_of("sluice_memory_left_bytes"), 0);
  EXPECT_GE(value_of("sluice_memory_limit_bytes"),
            value_of("sluice_memory_left_bytes"));
  EXPECT_THAT(text, Not(HasSubstr("process_open_fds 0\n")));
  EXPECT_THAT(text, HasSubstr(Cat("sluice_log_lines_dropped_total ",
                                  LogLinesDropped(), "\n")));
}

TEST(MetricsTest, BoundsRiseAndHoldVllmsBoundaries) {
  const auto rising = [](const std::vector<double>& bounds) {
    return std::adjacent_find(bounds.begin(), bounds.end(),
                              std::greater_equal<>()) == bounds.end();
  };
  EXPECT_TRUE(rising(buckets::Ttft()));
  EXPECT_TRUE(rising(buckets::InterToken()));
  EXPECT_TRUE(rising(buckets::RequestLatency()));
  EXPECT_TRUE(rising(buckets::StepPart()));
  EXPECT_TRUE(rising(buckets::BatchSize()));
  EXPECT_EQ(buckets::StepTokens(),
            (std::vector<double>{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048,
                                 4096, 8192, 16384}));
  EXPECT_EQ(buckets::Choices(), (std::vector<double>{1, 2, 5, 10, 20}));
  EXPECT_EQ(buckets::TokenCount(512),
            (std::vector<double>{1, 2, 5, 10, 20, 50, 100, 200, 500, 512}));
  const auto holds = [](const std::vector<double>& ours,
                        const std::vector<double>& theirs) {
    const std::set<double> set(ours.begin(), ours.end());
    return std::all_of(theirs.begin(), theirs.end(),
                       [&](double bound) { return set.contains(bound); });
  };
  EXPECT_TRUE(holds(buckets::Ttft(),
                    {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                     1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560}));
  EXPECT_TRUE(
      holds(buckets::InterToken(), {.01, .025, .05, .075, .1, .15, .2, .3, .4,
                                    .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}));
  EXPECT_TRUE(holds(buckets::RequestLatency(),
                    {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                     30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}));
}

std::set<std::string> Matches(const std::string& path, const char* pattern) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  std::set<std::string> found;
  const std::regex regex(pattern);
  for (std::sregex_iterator i(all.begin(), all.end(), regex), end; i != end;
       ++i) {
    found.insert((*i)[1]);
  }
  return found;
}

// Runs in the root of the checkout.
TEST(MetricsTest, EveryNameIsOnThePageAndNoOther) {
  const auto names = Matches("common/metrics/metric_names.h",
                             "constexpr Name k[A-Za-z0-9]+ =\\s+\"([^\"]+)\"");
  EXPECT_GT(names.size(), 100u);
  EXPECT_EQ(names, Matches("services/METRICS.md", "\n\\| `([a-z_:0-9]+)` \\|"));
}

TEST(RpcMetricsTest, AnEndedRpcIsCountedByItsCodeAndItsTimeObserved) {
  Registry registry;
  RecordHandled(registry,
                {"sluice.v1.Stage", "Steps", "bidi_stream",
                 StatusCode::kUnavailable, std::chrono::milliseconds(250)});
  const std::string text = registry.Text();
  EXPECT_THAT(
      text, HasSubstr("grpc_server_handled_total{grpc_code=\"Unavailable\","
                      "grpc_method=\"Steps\",grpc_service=\"sluice.v1.Stage\","
                      "grpc_type=\"bidi_stream\"} 1\n"));
  EXPECT_THAT(
      text, HasSubstr("grpc_server_handling_seconds_sum{grpc_method=\"Steps\","
                      "grpc_service=\"sluice.v1.Stage\","
                      "grpc_type=\"bidi_stream\"} 0.25\n"));
}

}  // namespace
}  // namespace sluice::metrics
