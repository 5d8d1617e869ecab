#include "services/cli/bench/bench_options.h"

#include <chrono>

#include "common/tools/load/server_queries.h"

namespace sluice::cli {
namespace {

Duration ToDuration(double seconds) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(seconds));
}

void AddLoadOptions(CLI::App& app, BenchOptions& options) {
  load::LoadOptions& load = options.load;
  CLI::Option* rate =
      app.add_option("--rate", load.rate,
                     "open loop: requests a second, as a Poisson process")
          ->check(Above(0, 1e6));
  app.add_option("--concurrency", load.concurrency,
                 "closed loop: so many requests at any time (1)")
      ->check(Within(1, 16384))
      ->excludes(rate);
  app.add_option("--requests", options.requests,
                 "so many (100, with --duration any number)")
      ->check(Within(1, 1e8));
  app.add_option("--duration", options.duration_s, "for so many seconds")
      ->check(Above(0, 1e6));
  app.add_option("--warmup", options.warmup,
                 "requests sent first and not counted")
      ->check(Within(0, 1e6));
  app.add_option("--timeout", options.timeout_s, "of a request, seconds (600)")
      ->check(Above(0, 1e6));
  app.add_option("--max-in-flight", load.max_in_flight,
                 "of an open loop (4096)")
      ->check(Within(1, 65536));
}

void AddWorkloadOptions(CLI::App& app, BenchOptions& options) {
  load::WorkloadOptions& work = options.workload;
  app.add_option_function<std::string>(
         "--endpoint",
         [&work](const std::string& name) { work.chat = name == "chat"; },
         "chat or completions (completions)")
      ->check(CLI::IsMember({"chat", "completions"}));
  for (const auto& [name, range] :
       {std::pair("--prompt-tokens", &work.prompt_tokens),
        std::pair("--output-tokens", &work.output_tokens)}) {
    AddParsed(
        app, name, *range,
        [](const std::string& text) { return load::LengthRange::Parse(text); },
        "N, or LOW:HIGH (128)");
  }
  app.add_option("--temperature", work.temperature, "0: greedy (0)")
      ->check(Within(0, 100));
  app.add_option("--seed", options.seed, "of prompts and arrivals (the clock)")
      ->check(Within(0, static_cast<double>(INT64_MAX)));
  app.add_option("--extra", work.extra, "a JSON object: fields of every body");
  app.add_flag("--plain", options.plain, "no ignore_eos, no return_token_ids");
}

}  // namespace

void AddBenchOptions(CLI::App& app, BenchOptions& options) {
  AddEndpoint(app, options.endpoint);
  app.add_option("--model", options.workload.model,
                 "the first that the endpoint lists");
  AddLoadOptions(app, options);
  AddWorkloadOptions(app, options);
  AddParsed(
      app, "--slo", options.service_level,
      [](const std::string& text) { return load::ServiceLevel::Parse(text); },
      "ttft=MS,tpot=MS,e2e=MS: goodput, the requests that keep all");
  app.add_option("--json", options.json_path, "figures and every request");
  app.add_flag("--quiet", options.quiet, "no progress");
}

Status CompleteBenchOptions(BenchOptions& options) {
  load::LoadOptions& load = options.load;
  load::WorkloadOptions& work = options.workload;
  if (load.rate > 0) load.concurrency = 0;
  load.num_requests =
      options.requests.value_or(options.duration_s > 0 ? 0 : 100);
  load.duration = ToDuration(options.duration_s);
  load.timeout = ToDuration(options.timeout_s);
  work.extensions = !options.plain;
  load.target = work.chat ? "/v1/chat/completions" : "/v1/completions";
  const int64_t warmup = load.concurrency > 0 ? load.concurrency : 4;
  options.warmup = options.warmup.value_or(warmup);
  // Each run has a new seed: a server may have the prompts of the last run in
  // its cache.
  work.seed = load.seed = static_cast<uint64_t>(options.seed.value_or(
      std::chrono::system_clock::now().time_since_epoch() /
      std::chrono::milliseconds(1)));
  SLUICE_ASSIGN_OR_RETURN(load.base, FindGateway(options.endpoint));
  if (!work.model.empty()) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(work.model, load::ServedModelId(load.base));
  return OkStatus();
}

}  // namespace sluice::cli
