#include "services/cli/bench/bench_output.h"

#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "services/cli/format.h"

namespace sluice::cli {
namespace {

std::string Row(const char* name, const load::Summary& s) {
  if (s.count == 0) return "";
  return Format("%-22s %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f\n", name,
                s.mean, s.p50, s.p90, s.p95, s.p99, s.max);
}

std::string LoadText(const load::LoadOptions& load) {
  std::string text = load.concurrency > 0
                         ? Cat("closed loop, concurrency ", load.concurrency)
                         : Cat("open loop, ", load.rate, " requests/s");
  if (load.num_requests > 0) text += Cat(", ", load.num_requests, " requests");
  if (load.duration > Duration(0))
    text += Cat(", ", Seconds(load.duration), " s");
  return text + Cat(", seed ", load.seed);
}

Json SummaryJson(const load::Summary& s) {
  return {{"count", s.count}, {"mean", s.mean}, {"deviation", s.deviation},
          {"min", s.min},     {"p50", s.p50},   {"p90", s.p90},
          {"p95", s.p95},     {"p99", s.p99},   {"max", s.max}};
}

Json ConfigJson(const BenchOptions& options, const BenchNotes& notes) {
  const load::LoadOptions& load = options.load;
  const load::WorkloadOptions& work = options.workload;
  Json config = {
      {"url", Cat("http://", load.base.host, ":", load.base.port)},
      {"target", load.target},
      {"model", work.model},
      {"loop", load.concurrency > 0 ? "closed" : "open"},
      {"concurrency", load.concurrency},
      {"rate", load.rate},
      {"requests", load.num_requests},
      {"duration_s", Seconds(load.duration)},
      {"warmup_requests", options.warmup.value_or(0)},
      {"timeout_s", Seconds(load.timeout)},
      {"seed", load.seed},
      {"prompt_tokens", {work.prompt_tokens.low, work.prompt_tokens.high}},
      {"output_tokens", {work.output_tokens.low, work.output_tokens.high}},
      {"temperature", work.temperature},
      {"extensions", work.extensions},
      {"extra", work.extra},
      {"prompts", notes.prompt_kind},
      {"exact_prompt_lengths", notes.exact_lengths}};
  if (options.service_level) {
    const load::ServiceLevel& level = *options.service_level;
    Json slo = Json::object();
    if (level.ttft_ms) slo["ttft_ms"] = *level.ttft_ms;
    if (level.tpot_ms) slo["tpot_ms"] = *level.tpot_ms;
    if (level.e2e_ms) slo["e2e_ms"] = *level.e2e_ms;
    config["slo"] = std::move(slo);
  }
  return config;
}

Json FailuresJson(const load::LoadSummary& summary) {
  Json failures = Json::object();
  for (const auto& [kind, failure] : summary.failures) {
    failures[kind] = {{"count", failure.count}, {"example", failure.example}};
  }
  return failures;
}

Json RequestJson(const load::RequestRecord& record, TimePoint began) {
  Json itl = Json::array();
  for (const double gap : record.InterTokenLatencies())
    itl.push_back(gap * 1e3);
  return {{"index", record.index},
          {"outcome", load::OutcomeName(record.outcome)},
          {"http_status", record.http_status},
          {"error", record.error},
          {"scheduled_s", Seconds(record.scheduled - began)},
          {"late_ms", record.Lateness() * 1e3},
          {"new_connection", record.new_connection},
          {"ttft_ms", record.TimeToFirstToken() * 1e3},
          {"tpot_ms", record.TimePerOutputToken() * 1e3},
          {"e2e_ms", record.Latency() * 1e3},
          {"longest_gap_ms", record.LongestGap() * 1e3},
          {"prompt_tokens", record.prompt_tokens},
          {"cached_tokens", record.cached_tokens},
          {"output_tokens", record.output_tokens},
          {"retry_after_s", record.retry_after_s},
          {"itl_ms", std::move(itl)}};
}

}  // namespace

std::string ProgressLine(const load::LoadOptions& load,
                         const load::LoadProgress& progress) {
  constexpr int kBarWidth = 24;
  double share = 0;
  if (load.num_requests > 0) {
    share = double(progress.ended) / double(load.num_requests);
  }
  if (load.duration > Duration(0)) {
    share = std::max(share, progress.elapsed_s / Seconds(load.duration));
  }
  const auto full = static_cast<size_t>(std::min(share, 1.0) * kBarWidth);
  std::string line =
      Cat("[", std::string(full, '#'), std::string(kBarWidth - full, '.'), "] ",
          progress.ended);
  if (load.num_requests > 0) line += Cat("/", load.num_requests);
  line += Format(" requests, %lld in flight, %.0f tokens/s, %.0f s",
                 static_cast<long long>(progress.in_flight),
                 double(progress.tokens) / std::max(progress.elapsed_s, 1e-3),
                 progress.elapsed_s);
  if (progress.failed > 0) line += Cat(", ", progress.failed, " failed");
  return line;
}

std::string SummaryText(const BenchOptions& options, const BenchNotes& notes,
                        const load::LoadSummary& s) {
  std::string out =
      Cat("\n", options.workload.model, " at http://", options.load.base.host,
          ":", options.load.base.port, options.load.target, "\n",
          LoadText(options.load), "\n\n");
  out +=
      Format("%lld of %lld requests answered in %.2f s%s\n",
             static_cast<long long>(s.done), static_cast<long long>(s.requests),
             s.window_s, s.interrupted ? ", interrupted" : "");
  out += Format("prompts: %s, %.1f tokens on average (%s), %lld from a cache\n",
                notes.prompt_kind.c_str(), s.prompt_lengths.mean,
                notes.exact_lengths ? "exact lengths" : "as the server counts",
                static_cast<long long>(s.cached_tokens));
  out += Format("answers: %.1f tokens on average, counted by %s\n\n",
                s.output_lengths.mean, s.token_source.c_str());
  out += Format("%-22s %10.3f\n", "requests/s", s.requests_per_s);
  out += Format("%-22s %10.1f\n", "input tokens/s", s.input_tokens_per_s);
  out += Format("%-22s %10.1f\n", "  not from a cache",
                s.computed_input_tokens_per_s);
  out += Format("%-22s %10.1f\n", "output tokens/s", s.output_tokens_per_s);
  out += Format("%-22s %10.1f\n", "in flight on average", s.mean_in_flight);
  if (s.goodput_per_s) {
    out +=
        Format("%-22s %10.3f  (%.1f %% of the requests)\n",
               "goodput, requests/s", *s.goodput_per_s, 100 * *s.goodput_share);
  }
  out += Format("\n%-22s %10s %10s %10s %10s %10s %10s\n", "milliseconds",
                "mean", "p50", "p90", "p95", "p99", "max");
  out += Row("TTFT", s.ttft) + Row("ITL", s.itl) + Row("TPOT", s.tpot) +
         Row("end to end", s.e2e) + Row("longest gap", s.longest_gap) +
         Row("refused after", s.refused_ms) + Row("sent late by", s.lateness);
  for (const auto& [kind, failure] : s.failures) {
    out +=
        Format("\n%s: %lld (%.300s)", kind.c_str(),
               static_cast<long long>(failure.count), failure.example.c_str());
  }
  if (s.retry_after_s.count > 0) {
    out +=
        Format("\nRetry-After of %zu refusals: %.1f to %.1f s",
               s.retry_after_s.count, s.retry_after_s.min, s.retry_after_s.max);
  }
  if (!s.failures.empty()) out += "\n";
  out += Format("\nthis client took %.1f %% of a core%s\n", 100 * s.cpu_share,
                s.cpu_share > 0.8 ? ": too much, its times are not to be "
                                    "trusted"
                                  : "");
  return out;
}

std::string ResultJson(const BenchOptions& options, const BenchNotes& notes,
                       const load::LoadSummary& s,
                       const load::LoadResult& result) {
  Json summary = {
      {"window_s", s.window_s},
      {"requests", s.requests},
      {"done", s.done},
      {"interrupted", s.interrupted},
      {"requests_per_s", s.requests_per_s},
      {"input_tokens_per_s", s.input_tokens_per_s},
      {"computed_input_tokens_per_s", s.computed_input_tokens_per_s},
      {"output_tokens_per_s", s.output_tokens_per_s},
      {"mean_in_flight", s.mean_in_flight},
      {"input_tokens", s.input_tokens},
      {"output_tokens", s.output_tokens},
      {"cached_tokens", s.cached_tokens},
      {"token_source", s.token_source},
      {"ttft_ms", SummaryJson(s.ttft)},
      {"itl_ms", SummaryJson(s.itl)},
      {"tpot_ms", SummaryJson(s.tpot)},
      {"e2e_ms", SummaryJson(s.e2e)},
      {"longest_gap_ms", SummaryJson(s.longest_gap)},
      {"late_ms", SummaryJson(s.lateness)},
      {"refused_ms", SummaryJson(s.refused_ms)},
      {"retry_after_s", SummaryJson(s.retry_after_s)},
      {"failures", FailuresJson(s)},
      {"client_cpu_share", s.cpu_share}};
  if (s.goodput_per_s) {
    summary["goodput_per_s"] = *s.goodput_per_s;
    summary["goodput_share"] = *s.goodput_share;
  }
  Json requests = Json::array();
  for (const load::RequestRecord& record : result.records) {
    requests.push_back(RequestJson(record, result.began));
  }
  summary["began_unix_s"] = result.began_unix_s;
  const Json all = {{"config", ConfigJson(options, notes)},
                    {"summary", std::move(summary)},
                    {"requests", std::move(requests)}};
  return DumpJson(all) + "\n";
}

}  // namespace sluice::cli
