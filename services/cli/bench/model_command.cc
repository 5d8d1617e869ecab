#include <unistd.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "common/base/text_file.h"
#include "services/cli/bench/model_report.h"
#include "services/cli/bench/model_run.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

constexpr int32_t kPrefillTokens = 512;

using ReportText = std::string (*)(const ModelRun&);

Status RunModelBench(const ModelBenchOptions& options, const char* command,
                     const std::vector<StepKind>& kinds, ReportText report) {
  const bool terminal = isatty(STDERR_FILENO) == 1;
  auto run = MeasureModel(options, kinds, [&](int32_t round) {
    if (!terminal) return;
    std::fprintf(stderr, "\rround %d of %d", round + 1, options.rounds);
  });
  if (terminal) std::fputs("\r\x1b[K", stderr);
  SLUICE_RETURN_IF_ERROR(run.status());
  std::fputs(report(*run).c_str(), stdout);
  if (options.json_path.empty()) return OkStatus();
  SLUICE_RETURN_IF_ERROR(
      WriteTextFile(options.json_path, ModelRunJson(command, *run)));
  std::fprintf(stderr, "wrote %s\n", options.json_path.c_str());
  return OkStatus();
}

// Adds `bench`'s part `name`, which measures `kinds` and prints `report`.
void AddModelBench(CommandLine& sluice, const char* name, const char* about,
                   std::vector<StepKind> kinds, ReportText report) {
  const auto options = std::make_shared<ModelBenchOptions>();
  CLI::App& app =
      sluice.AddPart("bench", name, about, [options, name, kinds, report] {
        return RunModelBench(*options, name, kinds, report);
      });
  app.add_option("--model", options->model, "folder or GGUF")->required();
  app.add_option("--threads", options->threads, "that compute (one per core)")
      ->check(Within(1, 1024));
  app.add_option("--isa", options->isa,
                 "auto, avx512vnni, avx512, avxvnni, avx2, neoni8mm, neondot, "
                 "neon or portable");
  app.add_option("--weights", options->weights,
                 "auto, bf16, f32, q8_0, q4_0, q4_1, q5_0 or q5_1");
  app.add_option("--context", options->context,
                 "tokens of a sequence before its decode step (128)")
      ->check(Within(0, 1 << 20));
  app.add_option("--rounds", options->rounds, "of which medians are told (7)")
      ->check(Within(1, 10000));
  app.add_option("--json", options->json_path, "every figure, of every round");
}

}  // namespace

void AddBenchModel(CommandLine& sluice) {
  AddModelBench(sluice, "kernels",
                "each operation of a model here, beside this CPU's limits",
                {{1, 1}, {8, 1}, {1, kPrefillTokens}}, KernelsText);
  AddModelBench(sluice, "layers",
                "where the time of a model's step goes, as a picture",
                {{1, 1}, {1, kPrefillTokens}}, LayersText);
}

}  // namespace sluice::cli
