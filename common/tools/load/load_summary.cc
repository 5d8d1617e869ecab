#include "common/tools/load/load_summary.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace sluice::load {
namespace {

constexpr double kMs = 1e3;

std::string FailureKind(const RequestRecord& record) {
  if (record.outcome == Outcome::kHttpError ||
      record.outcome == Outcome::kRefused) {
    return Cat(OutcomeName(record.outcome), " ", record.http_status);
  }
  return OutcomeName(record.outcome);
}

const char* SourceName(TokenSource source) {
  switch (source) {
    case TokenSource::kEvents:
      return "counted events";
    case TokenSource::kTokenIds:
      return "token ids";
    case TokenSource::kUsage:
      return "usage";
  }
  return "unknown";
}

void AddDone(const RequestRecord& record, LoadSummary& out) {
  out.ttft.values.push_back(record.TimeToFirstToken() * kMs);
  out.e2e.values.push_back(record.Latency() * kMs);
  out.prompt_lengths.values.push_back(
      static_cast<double>(record.prompt_tokens));
  out.output_lengths.values.push_back(
      static_cast<double>(record.output_tokens));
  if (record.arrivals.size() < 2) return;
  out.tpot.values.push_back(record.TimePerOutputToken() * kMs);
  out.longest_gap.values.push_back(record.LongestGap() * kMs);
  for (const double gap : record.InterTokenLatencies()) {
    out.itl.values.push_back(gap * kMs);
  }
}

void AddFailure(const RequestRecord& record, LoadSummary& out) {
  Failure& failure = out.failures[FailureKind(record)];
  if (failure.count++ == 0) failure.example = record.error;
  if (record.outcome != Outcome::kRefused) return;
  out.refused_ms.values.push_back(record.Latency() * kMs);
  if (record.retry_after_s >= 0) {
    out.retry_after_s.values.push_back(record.retry_after_s);
  }
}

// Adds the rates of the time up to `end`.
void AddRates(const std::vector<RequestRecord>& records, TimePoint end,
              LoadSummary& out) {
  int64_t requests = 0, input = 0, cached = 0;
  double output = 0;
  for (const RequestRecord& record : records) {
    if (record.outcome == Outcome::kDone && record.ended <= end) ++requests;
    if (record.arrivals.empty()) continue;
    if (record.arrivals.front().at <= end) {
      input += record.prompt_tokens;
      cached += record.cached_tokens;
    }
    int64_t within = 0, counted = 0;
    for (const TokenArrival& arrival : record.arrivals) {
      counted += arrival.tokens;
      if (arrival.at <= end) within += arrival.tokens;
    }
    // Events of several tokens: the usage's count is spread evenly over events.
    output += static_cast<double>(record.output_tokens) *
              static_cast<double>(within) /
              static_cast<double>(std::max<int64_t>(counted, 1));
  }
  if (out.window_s <= 0) return;
  out.requests_per_s = static_cast<double>(requests) / out.window_s;
  out.input_tokens_per_s = static_cast<double>(input) / out.window_s;
  out.computed_input_tokens_per_s =
      static_cast<double>(input - cached) / out.window_s;
  out.output_tokens_per_s = output / out.window_s;
}

double MeanInFlight(const LoadResult& result, TimePoint end, double window_s) {
  double busy = 0;
  for (const RequestRecord& record : result.records) {
    busy += std::max(
        0.0, Seconds(std::min(record.ended, end) -
                     std::min(std::max(record.sent, result.began), end)));
  }
  return window_s > 0 ? busy / window_s : 0;
}

}  // namespace

double Percentile(const std::vector<double>& sorted, double percent) {
  const double rank =
      std::clamp(percent, 0.0, 100.0) / 100.0 * double(sorted.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = rank - static_cast<double>(below);
  return sorted[below] + share * (sorted[above] - sorted[below]);
}

Summary Summarize(std::vector<double> values) {
  Summary out;
  out.count = values.size();
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  out.mean = sum / static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) {
    squares += (value - out.mean) * (value - out.mean);
  }
  out.deviation = std::sqrt(squares / static_cast<double>(values.size()));
  out.min = values.front();
  out.p50 = Percentile(values, 50);
  out.p90 = Percentile(values, 90);
  out.p95 = Percentile(values, 95);
  out.p99 = Percentile(values, 99);
  out.max = values.back();
  return out;
}

StatusOr<ServiceLevel> ServiceLevel::Parse(std::string_view text) {
  ServiceLevel level;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    const std::string_view digits =
        equals == std::string_view::npos ? "" : part.substr(equals + 1);
    double value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc() || stop != end || !(value > 0)) {
      return InvalidArgument("'", part, "' is not NAME=MILLISECONDS");
    }
    if (name == "ttft") {
      level.ttft_ms = value;
    } else if (name == "tpot") {
      level.tpot_ms = value;
    } else if (name == "e2e") {
      level.e2e_ms = value;
    } else {
      return InvalidArgument("'", name, "' is none of ttft, tpot and e2e");
    }
  }
  return level;
}

bool ServiceLevel::IsKeptBy(const RequestRecord& record) const {
  if (record.outcome != Outcome::kDone) return false;
  return !(ttft_ms && record.TimeToFirstToken() * kMs > *ttft_ms) &&
         !(tpot_ms && record.TimePerOutputToken() * kMs > *tpot_ms) &&
         !(e2e_ms && record.Latency() * kMs > *e2e_ms);
}

LoadSummary Summarize(const LoadResult& result, Duration duration,
                      const std::optional<ServiceLevel>& level) {
  LoadSummary out;
  TimePoint end = result.ended;
  if (duration > Duration(0)) end = std::min(end, result.began + duration);
  out.window_s = Seconds(end - result.began);
  out.cpu_share = result.cpu_share;
  out.interrupted = result.interrupted;
  std::map<std::string, int64_t> sources;
  int64_t good = 0, good_in_window = 0;
  for (const RequestRecord& record : result.records) {
    ++out.requests;
    out.lateness.values.push_back(record.Lateness() * kMs);
    if (record.outcome != Outcome::kDone) {
      AddFailure(record, out);
      continue;
    }
    ++out.done;
    out.input_tokens += record.prompt_tokens;
    out.output_tokens += record.output_tokens;
    out.cached_tokens += record.cached_tokens;
    ++sources[SourceName(record.source)];
    AddDone(record, out);
    if (!level || !level->IsKeptBy(record)) continue;
    ++good;
    if (record.ended <= end) ++good_in_window;
  }
  for (const auto& [name, count] : sources) {
    out.token_source += (out.token_source.empty() ? "" : ", ") + name;
  }
  AddRates(result.records, end, out);
  out.mean_in_flight = MeanInFlight(result, end, out.window_s);
  if (level && out.requests > 0 && out.window_s > 0) {
    out.goodput_share =
        static_cast<double>(good) / static_cast<double>(out.requests);
    out.goodput_per_s = static_cast<double>(good_in_window) / out.window_s;
  }
  for (Summary* one :
       {&out.ttft, &out.itl, &out.tpot, &out.e2e, &out.longest_gap,
        &out.lateness, &out.prompt_lengths, &out.output_lengths,
        &out.refused_ms, &out.retry_after_s}) {
    *one = Summarize(std::move(one->values));
  }
  return out;
}

}  // namespace sluice::load
