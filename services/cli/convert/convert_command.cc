#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/convert/convert_model.h"

namespace sluice::cli {
namespace {

double Megabytes(uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

void PrintReport(const ConvertOptions& options, const ConvertReport& report) {
  double worst = 0;
  double sum = 0;
  int quantised = 0;
  for (const ConvertedMatrix& matrix : report.matrices) {
    if (!matrix.is_quantised) continue;
    ++quantised;
    sum += matrix.relative_error;
    worst = std::max(worst, matrix.relative_error);
  }
  std::printf("wrote %s: %d files, %.2f MB of tensors, %.2f MB before\n",
              options.out.c_str(), report.num_files,
              Megabytes(report.bytes_after), Megabytes(report.bytes_before));
  std::printf("%d of the layers' %zu matrices are quantised, the others BF16\n",
              quantised, report.matrices.size());
  if (quantised == 0) return;
  std::printf(
      "relative error of a matrix: mean %.5f, worst %.5f "
      "(each in convert_report.json)\n",
      sum / quantised, worst);
}

struct CommandOptions {
  ConvertOptions convert;
  std::string weights = "q4_0";
  double shard_gb = 4.0;
};

Status RunConvert(CommandOptions options) {
  using kernels::BlockFormat;
  if (options.weights == "q4_0") options.convert.format = BlockFormat::kQ4_0;
  if (options.weights == "q8_0") options.convert.format = BlockFormat::kQ8_0;
  options.convert.shard_bytes = static_cast<uint64_t>(options.shard_gb * 1e9);
  const bool terminal = isatty(STDERR_FILENO) == 1;
  uint64_t told = 0;
  const auto progress = [&](uint64_t done, uint64_t total) {
    const uint64_t percent = total > 0 ? done * 100 / total : 100;
    if (!terminal || percent == told) return;
    told = percent;
    std::fprintf(stderr, "\r%3d %% of %.0f MB%s", static_cast<int>(percent),
                 Megabytes(total), percent == 100 ? "\n" : "");
  };
  SLUICE_ASSIGN_OR_RETURN(const ConvertReport report,
                          ConvertModel(options.convert, progress));
  PrintReport(options.convert, report);
  return OkStatus();
}

}  // namespace

void AddConvert(CommandLine& sluice) {
  const auto options = std::make_shared<CommandOptions>();
  CLI::App& convert =
      sluice.Add("convert", "quantises a model folder into another",
                 [options] { return RunConvert(*options); });
  convert.add_option("MODEL", options->convert.model, "folder of safetensors")
      ->required();
  convert.add_option("OUT", options->convert.out, "folder to make")->required();
  convert
      .add_option("--weights", options->weights,
                  "the layers' matrices: q4_0, q8_0 or bf16")
      ->check(CLI::IsMember({"q4_0", "q8_0", "bf16"}))
      ->capture_default_str();
  convert.add_option("--keep", options->convert.keep,
                     "matrices whose name this regular expression finds "
                     "become BF16");
  convert
      .add_option("--shard-gb", options->shard_gb,
                  "aim of one file's size, in 10^9 bytes")
      ->check(CLI::Range(0.001, 1000.0))
      ->capture_default_str();
}

}  // namespace sluice::cli
