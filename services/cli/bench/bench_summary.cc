#include "services/cli/bench/bench_summary.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace sluice::cli {
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

// The measurements of many requests, before they are summarized.
struct Samples {
  std::vector<double> ttft, itl, tpot, e2e, gap, late, prompt, output;
  std::vector<double> refused, retry_after;
};

void AddDone(const RequestRecord& record, Samples& samples) {
  samples.ttft.push_back(record.TimeToFirstToken() * kMs);
  samples.e2e.push_back(record.Latency() * kMs);
  samples.prompt.push_back(static_cast<double>(record.prompt_tokens));
  samples.output.push_back(static_cast<double>(record.output_tokens));
  if (record.arrivals.size() < 2) return;
  samples.tpot.push_back(record.TimePerOutputToken() * kMs);
  samples.gap.push_back(record.LongestGap() * kMs);
  for (const double gap : record.InterTokenLatencies()) {
    samples.itl.push_back(gap * kMs);
  }
}

void AddFailure(const RequestRecord& record, Samples& samples,
                BenchSummary& out) {
  Failure& failure = out.failures[FailureKind(record)];
  if (failure.count++ == 0) failure.example = record.error;
  if (record.outcome != Outcome::kRefused) return;
  samples.refused.push_back(record.Latency() * kMs);
  if (record.retry_after_s >= 0) {
    samples.retry_after.push_back(record.retry_after_s);
  }
}

// Rates count what happened until `end`.
void AddRates(const std::vector<RequestRecord>& records, TimePoint end,
              BenchSummary& out) {
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
    // Where an event is several tokens, the usage's count is spread evenly.
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
      return InvalidArgument("--slo: '", part, "' is not NAME=MILLISECONDS");
    }
    if (name == "ttft") {
      level.ttft_ms = value;
    } else if (name == "tpot") {
      level.tpot_ms = value;
    } else if (name == "e2e") {
      level.e2e_ms = value;
    } else {
      return InvalidArgument("--slo: '", name,
                             "' is none of ttft, tpot and e2e");
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

BenchSummary Summarize(const LoadResult& result, Duration duration,
                       const std::optional<ServiceLevel>& level) {
  BenchSummary out;
  Samples samples;
  TimePoint end = result.ended;
  if (duration > Duration(0)) end = std::min(end, result.began + duration);
  out.window_s = Seconds(end - result.began);
  out.cpu_share = result.cpu_share;
  out.interrupted = result.interrupted;
  std::map<std::string, int64_t> sources;
  int64_t good = 0, good_in_window = 0;
  for (const RequestRecord& record : result.records) {
    ++out.requests;
    samples.late.push_back(record.Lateness() * kMs);
    if (record.outcome != Outcome::kDone) {
      AddFailure(record, samples, out);
      continue;
    }
    ++out.done;
    out.input_tokens += record.prompt_tokens;
    out.output_tokens += record.output_tokens;
    out.cached_tokens += record.cached_tokens;
    ++sources[SourceName(record.source)];
    AddDone(record, samples);
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
  out.ttft = Summarize(std::move(samples.ttft));
  out.itl = Summarize(std::move(samples.itl));
  out.tpot = Summarize(std::move(samples.tpot));
  out.e2e = Summarize(std::move(samples.e2e));
  out.longest_gap = Summarize(std::move(samples.gap));
  out.lateness = Summarize(std::move(samples.late));
  out.prompt_lengths = Summarize(std::move(samples.prompt));
  out.output_lengths = Summarize(std::move(samples.output));
  out.refused_ms = Summarize(std::move(samples.refused));
  out.retry_after_s = Summarize(std::move(samples.retry_after));
  return out;
}

Timeline MakeTimeline(const LoadResult& result) {
  Timeline out;
  const double length = Seconds(result.ended - result.began);
  if (length <= 0) return out;
  out.step_s = length / 60;
  for (const double step : {0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0}) {
    if (length / step <= 120) {
      out.step_s = step;
      break;
    }
  }
  const auto count = static_cast<size_t>(std::ceil(length / out.step_s));
  out.output_tokens_per_s.resize(count);
  out.in_flight.resize(count);
  const auto bucket = [&](TimePoint at) {
    const double steps = Seconds(at - result.began) / out.step_s;
    return std::min(static_cast<size_t>(std::max(steps, 0.0)), count - 1);
  };
  for (const RequestRecord& record : result.records) {
    for (const TokenArrival& arrival : record.arrivals) {
      out.output_tokens_per_s[bucket(arrival.at)] +=
          arrival.tokens / out.step_s;
    }
    for (size_t i = bucket(record.sent); i <= bucket(record.ended); ++i) {
      const double from = static_cast<double>(i) * out.step_s;
      const double begin = Seconds(record.sent - result.began);
      const double stop = Seconds(record.ended - result.began);
      out.in_flight[i] += std::max(0.0, std::min(stop, from + out.step_s) -
                                            std::max(begin, from)) /
                          out.step_s;
    }
  }
  // The last step may be shorter.
  const double last = length - double(count - 1) * out.step_s;
  if (last > 0) {
    out.output_tokens_per_s.back() *= out.step_s / last;
    out.in_flight.back() *= out.step_s / last;
  }
  return out;
}

}  // namespace sluice::cli
