#include "common/tools/eval/cost_table.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "common/tools/load/load_summary.h"

namespace sluice::eval {
namespace {

// What plots show in the place of smaller values, which are rounding's.
constexpr double kLeastShown = 1e-9;
constexpr double kStepsPerDoubling = 4;  // of positions that are one point

double MeanOf(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              double(values.size());
}

// Errors of the positions that are one point.
struct Step {
  double position = 0, sum = 0, most = 0;
  size_t count = 0;
};

using Value = std::function<double(const PositionError&)>;

std::vector<Step> StepsOf(const Comparison& found, const Value& value) {
  std::map<int, Step> steps;
  for (const PromptComparison& prompt : found.prompts) {
    for (const PositionError& error : prompt.positions) {
      const auto position = static_cast<double>(error.position);
      Step& step = steps[static_cast<int>(
          std::floor(kStepsPerDoubling * std::log2(position)))];
      ++step.count;
      step.position += position;
      step.sum += value(error);
      step.most = std::max(step.most, value(error));
    }
  }
  std::vector<Step> out;
  for (auto& [index, step] : steps) {
    step.position /= double(step.count);
    out.push_back(step);
  }
  return out;
}

PlotSeries MeanLine(const std::string& name, const std::vector<Step>& steps) {
  PlotSeries series;
  series.name = name;
  for (const Step& step : steps) {
    const double mean = step.sum / double(step.count);
    series.points.push_back({step.position, std::max(mean, kLeastShown), ""});
  }
  return series;
}

std::string Megabytes(uint64_t bytes) {
  if (bytes == 0) return "-";
  return Fixed(double(bytes) * 1e-6, bytes < 10'000'000 ? 3 : 1);
}

// Returns where the first greedy id differs, over all prompts that differ.
std::string FirstParting(const Comparison& found) {
  size_t parted = 0, asked = 0, first = 0;
  std::string where;
  for (const PromptComparison& prompt : found.prompts) {
    if (!prompt.greedy_given) continue;
    ++asked;
    if (prompt.greedy_same == prompt.greedy) continue;
    if (parted == 0 || prompt.greedy_same < first) {
      first = prompt.greedy_same;
      where = Cat("token ", first, " of ", prompt.name);
    }
    ++parted;
  }
  if (parted == 0) return asked == 0 ? "-" : "none parts";
  return Cat(parted, " of ", asked, " part, first at ", where);
}

std::vector<std::string> RowOf(const CostRow& row, const CostRow& first) {
  const std::vector<double> divergences = row.found.SortedDivergences();
  const bool any = !divergences.empty();
  const ErrorStats logprobs = row.found.Logprobs();
  return {row.form,
          Megabytes(row.bytes),
          row.bytes == 0 || first.bytes == 0
              ? "-"
              : Percent(double(row.bytes) / double(first.bytes)),
          Cat(row.found.GreedySame(), " of ", row.found.Greedy()),
          FirstParting(row.found),
          any ? Percent(row.found.SameTop()) : "-",
          any ? Scientific(MeanOf(divergences)) : "-",
          any ? Scientific(load::Percentile(divergences, 99)) : "-",
          any ? Scientific(divergences.back()) : "-",
          Scientific(logprobs.max),
          row.found.Perplexity() > 0 ? Fixed(row.found.Perplexity(), 4) : "-",
          row.tokens_per_s > 0 ? Fixed(row.tokens_per_s, 1) : "-"};
}

}  // namespace

std::string CostTable(const std::vector<CostRow>& rows) {
  std::vector<std::vector<std::string>> table = {
      {"form", "weights, MB", "of the first", "greedy ids", "answers",
       "likeliest id the same", "divergence: mean", "p99", "max",
       "log probabilities: max error", "perplexity", "tokens/s"}};
  std::string head;
  for (const CostRow& row : rows) {
    table.push_back(RowOf(row, rows.front()));
    if (head.empty() && row.found.ReferencePerplexity() > 0) {
      head = Cat("The reference's perplexity of the prompts is ",
                 Fixed(row.found.ReferencePerplexity(), 4), ".\n\n");
    }
  }
  return head + MarkdownTable(table);
}

Plot CostPlot(const std::vector<CostRow>& rows) {
  Plot plot;
  plot.title = "What a form costs";
  plot.x.label = "weights, MB";
  plot.y = {"mean divergence from the reference, nats", true};
  PlotSeries dots;
  dots.line = false;
  for (const CostRow& row : rows) {
    if (row.bytes == 0) continue;
    const double mean = MeanOf(row.found.SortedDivergences());
    dots.points.push_back(
        {double(row.bytes) * 1e-6, std::max(mean, kLeastShown), row.form});
  }
  plot.series.push_back(std::move(dots));
  return plot;
}

Plot DivergenceByPosition(const std::vector<CostRow>& rows) {
  Plot plot;
  plot.title = "Mean divergence by position";
  plot.x = {"position, tokens", true};
  plot.y = {"mean divergence from the reference, nats", true};
  for (const CostRow& row : rows) {
    plot.series.push_back(
        MeanLine(row.form, StepsOf(row.found, [](const PositionError& error) {
                   return error.divergence;
                 })));
  }
  return plot;
}

Plot ErrorByPosition(const Comparison& found) {
  const auto errors = StepsOf(found, [](const PositionError& error) {
    return std::fabs(error.logprob);
  });
  Plot plot;
  plot.title = "Errors by position";
  plot.x = {"position, tokens", true};
  plot.y = {"nats", true};
  plot.series.push_back(MeanLine("log probability, mean error", errors));
  PlotSeries most;
  most.name = "largest error";
  for (const Step& step : errors) {
    const double size = std::max(step.most, kLeastShown);
    most.points.push_back({step.position, size, ""});
  }
  plot.series.push_back(std::move(most));
  plot.series.push_back(MeanLine("divergence, mean",
                                 StepsOf(found, [](const PositionError& error) {
                                   return error.divergence;
                                 })));
  return plot;
}

StatusOr<double> MeasureRate(const EvalApi& api, const std::string& prompt_json,
                             int64_t tokens) {
  using Seconds = std::chrono::duration<double>;
  double times[2] = {};
  for (const int round : {0, 1, 1, 0}) {  // The first of each warms up.
    Probe probe;
    probe.name = "rate";
    probe.prompt_json = prompt_json;
    probe.max_tokens = round == 0 ? 1 : tokens;
    const auto begin = std::chrono::steady_clock::now();
    SLUICE_RETURN_IF_ERROR(api.Ask(probe).status());
    times[round] = Seconds(std::chrono::steady_clock::now() - begin).count();
  }
  const double spent = times[1] - times[0];
  return spent <= 0 ? 0 : double(tokens - 1) / spent;
}

}  // namespace sluice::eval
