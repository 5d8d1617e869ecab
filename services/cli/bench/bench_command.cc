#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <utility>

#include "common/base/text_file.h"
#include "services/cli/bench/bench_options.h"
#include "services/cli/bench/bench_output.h"
#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

// Indices of warm-up requests, so that no request of the run has their prompts.
constexpr int64_t kWarmupIndex = int64_t{1} << 40;

using RequestMaker = std::function<load::LoadRequest(int64_t)>;

StatusOr<load::LoadResult> RunPhase(const BenchOptions& options,
                                    const load::LoadOptions& load,
                                    const char* name,
                                    const RequestMaker& make) {
  // A terminal redraws one line; else a line is printed every few seconds.
  const bool terminal = isatty(STDERR_FILENO) == 1;
  double next_s = 0;
  auto result =
      load::GenerateLoad(load, make, [&](const load::LoadProgress& progress) {
        if (options.quiet || (!terminal && progress.elapsed_s < next_s)) return;
        next_s = progress.elapsed_s + 5;
        const std::string line = Cat(name, " ", ProgressLine(load, progress));
        std::fprintf(stderr, terminal ? "\r%.79s\x1b[K" : "%s\n", line.c_str());
      });
  if (terminal && !options.quiet) std::fputs("\r\x1b[K", stderr);
  return result;
}

// Runs at the load's own concurrency, or some at a time for an open loop.
Status WarmUp(const BenchOptions& options, const load::Workload& workload) {
  if (*options.warmup == 0) return OkStatus();
  load::LoadOptions load = options.load;
  load.num_requests = *options.warmup;
  load.duration = Duration(0);
  if (load.concurrency == 0) load.concurrency = 4;
  SLUICE_ASSIGN_OR_RETURN(
      const load::LoadResult result,
      RunPhase(options, load, "warm-up", [&](int64_t index) {
        return workload.Request(kWarmupIndex + index);
      }));
  if (result.interrupted) return Cancelled("interrupted in the warm-up");
  for (const load::RequestRecord& record : result.records) {
    if (record.outcome == load::Outcome::kDone) return OkStatus();
  }
  return FailedPrecondition("no request of the warm-up was answered: ",
                            load::OutcomeName(result.records.front().outcome),
                            ", ", result.records.front().error);
}

Status RunBench(BenchOptions options) {
  SLUICE_RETURN_IF_ERROR(CompleteBenchOptions(options));
  SLUICE_ASSIGN_OR_RETURN(
      const load::Workload workload,
      load::Workload::Prepare(options.workload, options.load.base));
  SLUICE_RETURN_IF_ERROR(WarmUp(options, workload));
  SLUICE_ASSIGN_OR_RETURN(
      const load::LoadResult result,
      RunPhase(options, options.load, "bench",
               [&](int64_t index) { return workload.Request(index); }));
  const load::LoadSummary summary =
      load::Summarize(result, options.load.duration, options.service_level);
  const BenchNotes notes{workload.prompt_kind(), workload.exact()};
  std::fputs(SummaryText(options, notes, summary).c_str(), stdout);
  if (!options.json_path.empty()) {
    SLUICE_RETURN_IF_ERROR(WriteTextFile(
        options.json_path, ResultJson(options, notes, summary, result)));
    std::fprintf(stderr, "wrote %s\n", options.json_path.c_str());
  }
  if (summary.requests == 0) return FailedPrecondition("no request was sent");
  if (summary.done == summary.requests) return OkStatus();
  return FailedPrecondition(summary.requests - summary.done, " of ",
                            summary.requests, " requests were not answered");
}

}  // namespace

void AddBench(CommandLine& sluice) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App& bench = sluice.Add("bench", "load against an OpenAI endpoint",
                               [options] { return RunBench(*options); });
  AddBenchOptions(bench, *options);
}

}  // namespace sluice::cli
