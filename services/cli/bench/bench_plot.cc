#include <cstdio>
#include <utility>

#include "services/cli/bench/bench_output.h"
#include "services/cli/svg_chart.h"

namespace sluice::cli {
namespace {

constexpr int kBins = 40;

std::string Ms(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), value < 100 ? "%.1f" : "%.0f", value);
  return text;
}

// What lies far beyond the 99th percentile shares the last bin.
Chart HistogramChart(const std::string& title,
                     const std::vector<double>& values, const Summary& s) {
  Chart chart;
  chart.title = Cat(title, ": mean ", Ms(s.mean), ", max ", Ms(s.max), " ms");
  chart.x_label = "milliseconds";
  chart.y_label = "% of the samples";
  chart.series.push_back({title, Histogram(values, kBins, 1.25 * s.p99),
                          ChartSeries::Shape::kSteps});
  for (const auto& [name, value] :
       {std::pair{"p50", s.p50}, std::pair{"p90", s.p90},
        std::pair{"p99", s.p99}}) {
    chart.marks.push_back({value, Cat(name, " ", Ms(value))});
  }
  return chart;
}

Chart TimeChart(const std::string& title, const std::string& unit,
                const std::vector<double>& values, double step_s) {
  Chart chart;
  chart.title = title;
  chart.x_label = "seconds since the first request";
  chart.y_label = unit;
  ChartSeries series;
  series.shape = ChartSeries::Shape::kSteps;
  for (size_t i = 0; i < values.size(); ++i) {
    series.points.emplace_back(static_cast<double>(i) * step_s, values[i]);
  }
  if (!values.empty()) {
    series.points.emplace_back(static_cast<double>(values.size()) * step_s,
                               values.back());
  }
  chart.series.push_back(std::move(series));
  return chart;
}

// Each request's time to first token, when it was due.
Chart TtftOverTime(const LoadResult& result) {
  Chart chart;
  chart.title = "Time to first token of each request";
  chart.x_label = "seconds since the first request";
  chart.y_label = "milliseconds";
  ChartSeries done{"answered", {}, ChartSeries::Shape::kDots};
  ChartSeries failed{"failed after", {}, ChartSeries::Shape::kDots};
  for (const RequestRecord& record : result.records) {
    const double at = Seconds(record.scheduled - result.began);
    if (record.outcome == Outcome::kDone) {
      done.points.emplace_back(at, record.TimeToFirstToken() * 1e3);
    } else {
      failed.points.emplace_back(at, record.Latency() * 1e3);
    }
  }
  chart.series.push_back(std::move(done));
  if (!failed.points.empty()) chart.series.push_back(std::move(failed));
  return chart;
}

}  // namespace

std::string ResultSvg(const BenchOptions& options, const BenchSummary& summary,
                      const LoadResult& result) {
  std::vector<double> ttft, itl, e2e;
  for (const RequestRecord& record : result.records) {
    if (record.outcome != Outcome::kDone) continue;
    ttft.push_back(record.TimeToFirstToken() * 1e3);
    e2e.push_back(record.Latency() * 1e3);
    for (const double gap : record.InterTokenLatencies()) {
      itl.push_back(gap * 1e3);
    }
  }
  const Timeline timeline = MakeTimeline(result);
  const std::string heading =
      Cat(options.workload.model, ", ",
          options.load.concurrency > 0
              ? Cat("concurrency ", options.load.concurrency)
              : Cat(options.load.rate, " requests/s"),
          ": ", summary.done, " of ", summary.requests, " requests, ",
          Ms(summary.output_tokens_per_s), " output tokens/s");
  return DrawCharts(
      heading,
      {HistogramChart("Time to first token", ttft, summary.ttft),
       HistogramChart("Inter-token latency", itl, summary.itl),
       HistogramChart("End to end", e2e, summary.e2e), TtftOverTime(result),
       TimeChart("Output tokens per second", "tokens/s",
                 timeline.output_tokens_per_s, timeline.step_s),
       TimeChart("Requests in flight", "requests", timeline.in_flight,
                 timeline.step_s)});
}

}  // namespace sluice::cli
