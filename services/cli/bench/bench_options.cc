#include "services/cli/bench/bench_options.h"

#include <chrono>
#include <cmath>
#include <cstdlib>

#include "services/cli/arguments.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_table.h"

namespace sluice::cli {
namespace {

constexpr int64_t kMaxConcurrency = 16384;

Duration ToDuration(double seconds) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(seconds));
}

// The number of an option, if given, within (low, high].
StatusOr<std::optional<double>> Above(const Arguments& arguments,
                                      const char* name, double low,
                                      double high) {
  SLUICE_ASSIGN_OR_RETURN(const auto value, arguments.Number(name));
  if (value && !(*value > low && *value <= high)) {
    return InvalidArgument("--", name, ": must be above ", low, " and at most ",
                           high, ", got ", *value);
  }
  return value;
}

StatusOr<std::optional<int64_t>> Within(const Arguments& arguments,
                                        const char* name, int64_t low,
                                        int64_t high) {
  SLUICE_ASSIGN_OR_RETURN(const auto value, arguments.Int(name));
  if (value && (*value < low || *value > high)) {
    return InvalidArgument("--", name, ": must be ", low, " to ", high,
                           ", got ", *value);
  }
  return value;
}

Status ReadLoop(const Arguments& arguments, LoadOptions& load) {
  SLUICE_ASSIGN_OR_RETURN(const auto concurrency,
                          Within(arguments, "concurrency", 1, kMaxConcurrency));
  SLUICE_ASSIGN_OR_RETURN(const auto rate, Above(arguments, "rate", 0, 1e6));
  SLUICE_ASSIGN_OR_RETURN(const auto burstiness,
                          Above(arguments, "burstiness", 0, HUGE_VAL));
  if (concurrency && rate) {
    return InvalidArgument(
        "--concurrency is a closed loop and --rate an open one: give one");
  }
  if (burstiness && !rate) {
    return InvalidArgument("--burstiness needs --rate");
  }
  load.concurrency = rate ? 0 : static_cast<int>(concurrency.value_or(1));
  load.rate = rate.value_or(0);
  load.burstiness = burstiness.value_or(1);
  return OkStatus();
}

Status ReadLimits(const Arguments& arguments, BenchOptions& out) {
  SLUICE_ASSIGN_OR_RETURN(const auto requests,
                          Within(arguments, "requests", 1, 100'000'000));
  SLUICE_ASSIGN_OR_RETURN(const auto duration,
                          Above(arguments, "duration", 0, 1e6));
  SLUICE_ASSIGN_OR_RETURN(const auto timeout,
                          Above(arguments, "timeout", 0, 1e6));
  SLUICE_ASSIGN_OR_RETURN(const auto warmup,
                          Within(arguments, "warmup", 0, 1'000'000));
  SLUICE_ASSIGN_OR_RETURN(const auto in_flight,
                          Within(arguments, "max-in-flight", 1, 65536));
  out.load.num_requests = requests.value_or(duration ? 0 : 100);
  out.load.duration = ToDuration(duration.value_or(0));
  out.load.timeout = ToDuration(timeout.value_or(600));
  out.load.max_in_flight = static_cast<int>(in_flight.value_or(4096));
  out.warmup =
      warmup.value_or(out.load.concurrency > 0 ? out.load.concurrency : 4);
  return OkStatus();
}

Status ReadWorkload(const Arguments& arguments, BenchOptions& out) {
  WorkloadOptions& work = out.workload;
  const std::string endpoint =
      arguments.String("endpoint").value_or("completions");
  if (endpoint != "chat" && endpoint != "completions") {
    return InvalidArgument("--endpoint: '", endpoint,
                           "' is neither chat nor completions");
  }
  work.chat = endpoint == "chat";
  out.load.target = work.chat ? "/v1/chat/completions" : "/v1/completions";
  if (const auto text = arguments.String("prompt-tokens")) {
    SLUICE_ASSIGN_OR_RETURN(work.prompt_tokens,
                            LengthRange::Parse("--prompt-tokens", *text));
  }
  if (const auto text = arguments.String("output-tokens")) {
    SLUICE_ASSIGN_OR_RETURN(work.output_tokens,
                            LengthRange::Parse("--output-tokens", *text));
  }
  work.warmup = out.warmup > 0;
  work.file = arguments.String("file").value_or("");
  work.extra = arguments.String("extra").value_or("");
  work.extensions = !arguments.Has("plain");
  SLUICE_ASSIGN_OR_RETURN(const auto temperature,
                          Above(arguments, "temperature", -1e-9, 100));
  work.temperature = temperature.value_or(0);
  SLUICE_ASSIGN_OR_RETURN(const auto seed,
                          Within(arguments, "seed", 0, INT64_MAX));
  // A new one for each run: prompts that a server has seen are in its cache.
  work.seed = out.load.seed = static_cast<uint64_t>(
      seed.value_or(std::chrono::system_clock::now().time_since_epoch() /
                    std::chrono::milliseconds(1)));
  return OkStatus();
}

}  // namespace

const char kBenchUsage[] = R"(usage: sluice bench [OPTIONS]

where   --url URL | --run-dir DIR   an OpenAI endpoint, or a cluster of ours
        --api-key KEY               else the environment's SLUICE_API_KEY
        --model NAME                default: the first that it lists
        --endpoint chat|completions (completions)
load    --concurrency N             closed loop: N requests at any time (1)
        --rate R                    open loop: R requests a second, Poisson
        --burstiness B              gamma arrivals: below 1 in bursts, above 1
                                    steadier, inf a fixed beat
        --requests N (100)          --duration SECONDS
        --warmup N                  requests sent first and not counted
        --timeout SECONDS (600)     --max-in-flight N (4096, open loop)
what    --prompt-tokens N|LOW:HIGH  (128)
        --output-tokens N|LOW:HIGH  (128)
        --file FILE                 JSONL: {"prompt": text or ids},
                                    {"messages": [..]}, {"prompt_tokens": N},
                                    each with "output_tokens": N if wanted
        --temperature T (0)         --seed N (of the clock)
        --extra JSON                fields for every body
        --plain                     no ignore_eos, no return_token_ids
report  --slo ttft=MS,tpot=MS,e2e=MS   goodput: requests that keep all
        --csv FILE  --json FILE  --svg FILE  --quiet

Exit status: 0 every request was answered, 1 some were not (or none was sent),
2 the command line was wrong.
)";

StatusOr<BenchOptions> ParseBenchOptions(const Words& words) {
  SLUICE_ASSIGN_OR_RETURN(const Arguments arguments,
                          ParseArguments("bench", words));
  if (!arguments.words().empty()) {
    return InvalidArgument("unexpected '", arguments.words()[0], "'\n",
                           kBenchUsage);
  }
  BenchOptions out;
  SLUICE_RETURN_IF_ERROR(ReadLoop(arguments, out.load));
  SLUICE_RETURN_IF_ERROR(ReadLimits(arguments, out));
  SLUICE_RETURN_IF_ERROR(ReadWorkload(arguments, out));
  if (const auto text = arguments.String("slo")) {
    SLUICE_ASSIGN_OR_RETURN(out.service_level, ServiceLevel::Parse(*text));
  }
  out.csv_path = arguments.String("csv").value_or("");
  out.json_path = arguments.String("json").value_or("");
  out.svg_path = arguments.String("svg").value_or("");
  out.quiet = arguments.Has("quiet");
  SLUICE_ASSIGN_OR_RETURN(out.load.base, FindGateway(arguments));
  if (const auto model = arguments.String("model")) {
    out.workload.model = *model;
  } else {
    SLUICE_ASSIGN_OR_RETURN(out.workload.model, ServedModelId(out.load.base));
  }
  return out;
}

}  // namespace sluice::cli
