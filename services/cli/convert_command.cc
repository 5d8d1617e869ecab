#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/text_file.h"
#include "common/text/tokenizer.h"
#include "common/tools/convert/convert_model.h"
#include "common/tools/convert/weight_names.h"
#include "common/tools/importance/measure_importance.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/hub_path.h"

namespace sluice::cli {
namespace {

double Megabytes(uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

void PrintReport(const ConvertOptions& options, const ConvertReport& report) {
  double worst = 0;
  double sum = 0;
  int quantised = 0;
  for (const ConvertedMatrix& matrix : report.matrices) {
    if (!matrix.is_quantised()) continue;
    ++quantised;
    sum += matrix.relative_error;
    worst = std::max(worst, matrix.relative_error);
  }
  std::printf("wrote %s: %d files, %.2f MB of tensors, %.2f MB before\n",
              options.out.c_str(), report.num_files,
              Megabytes(report.bytes_after), Megabytes(report.bytes_before));
  std::printf("%d of %zu matrices are quantised\n", quantised,
              report.matrices.size());
  if (quantised == 0) return;
  std::printf(
      "relative error of a matrix: mean %.5f, worst %.5f "
      "(each in the convert_report.json)\n",
      sum / quantised, worst);
}

struct CommandOptions {
  ConvertOptions convert;
  std::string weights;
  std::string keep;
  std::string importance;          // a file of text
  std::vector<std::string> rules;  // REGEX=TYPE
  double shard_gb = 4.0;
};

// Sets what the layers' matrices become.
Status ChooseWeights(CommandOptions& options) {
  std::string name = options.weights;
  if (name.empty()) {
    const auto config =
        std::filesystem::path(options.convert.model) / "config.json";
    std::error_code ignored;
    const std::string& out = options.convert.out;
    const bool keeps = !out.ends_with(".gguf") && !out.ends_with(".m") &&
                       !std::filesystem::exists(config, ignored);
    name = keeps ? "stored" : "q4_0";
  }
  SLUICE_ASSIGN_OR_RETURN(const NamedWeights weights, WeightsByName(name));
  options.convert.type = weights.type;
  options.convert.coding = weights.coding;
  return OkStatus();
}

Status ReadRules(CommandOptions& options) {
  if (!options.keep.empty()) {
    options.convert.rules.push_back({options.keep, weights::DType::kBF16});
  }
  for (const std::string& rule : options.rules) {
    const size_t at = rule.rfind('=');
    if (at == std::string::npos) {
      return InvalidArgument("--weights-for ", rule, ": expected REGEX=TYPE");
    }
    SLUICE_ASSIGN_OR_RETURN(const weights::DType type,
                            WeightTypeByName(rule.substr(at + 1)));
    options.convert.rules.push_back({rule.substr(0, at), type});
  }
  return OkStatus();
}

// Prints progress to a terminal, each per cent once.
class ProgressLine {
 public:
  explicit ProgressLine(std::string unit) : unit_(std::move(unit)) {}
  void operator()(double done, double total) {
    const int percent = total > 0 ? static_cast<int>(100 * done / total) : 100;
    if (isatty(STDERR_FILENO) != 1 || percent == told_) return;
    told_ = percent;
    std::fprintf(stderr, "\r%3d %% of %.0f %s%s", percent, total, unit_.c_str(),
                 percent == 100 ? "\n" : "");
  }

 private:
  const std::string unit_;
  int told_ = 0;
};

// Runs the text through the model.
Status MeasureColumns(CommandOptions& options) {
  if (options.importance.empty()) return OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const std::string text,
                          ReadTextFile(options.importance));
  SLUICE_ASSIGN_OR_RETURN(const auto tokenizer,
                          Tokenizer::Load(options.convert.model));
  auto tokens = tokenizer->Encode(text, {.parse_special_tokens = false});
  if (!tokens.ok()) return Annotate(tokens.status(), options.importance);
  ProgressLine line("tokens");
  ImportanceOptions measure;
  measure.threads = options.convert.threads;
  measure.progress = [&](int64_t done, int64_t total) {
    line(static_cast<double>(done), static_cast<double>(total));
  };
  SLUICE_ASSIGN_OR_RETURN(
      options.convert.importance,
      MeasureImportance(options.convert.model, *tokens, measure));
  std::printf("importance of the columns of %zu matrices, by %zu tokens\n",
              options.convert.importance.size(), tokens->size());
  return OkStatus();
}

Status RunConvert(CommandOptions options) {
  SLUICE_ASSIGN_OR_RETURN(options.convert.model,
                          PathOfModel(options.convert.model));
  SLUICE_RETURN_IF_ERROR(ChooseWeights(options));
  SLUICE_RETURN_IF_ERROR(ReadRules(options));
  options.convert.shard_bytes = static_cast<uint64_t>(options.shard_gb * 1e9);
  SLUICE_RETURN_IF_ERROR(MeasureColumns(options));
  ProgressLine line("MB");
  const auto progress = [&](uint64_t done, uint64_t total) {
    line(Megabytes(done), Megabytes(total));
  };
  SLUICE_ASSIGN_OR_RETURN(const ConvertReport report,
                          ConvertModel(options.convert, progress));
  PrintReport(options.convert, report);
  return OkStatus();
}

// "NAME:{stored,f32,...}", which help shows and completions offer.
std::string WeightsChoices() {
  std::string all;
  for (const std::string& name : WeightsNames()) {
    all += Cat(all.empty() ? "" : ",", name);
  }
  return Cat("NAME:{", all, "}");
}

}  // namespace

void AddConvert(CommandLine& sluice) {
  const auto options = std::make_shared<CommandOptions>();
  CLI::App& convert = sluice.Add(
      "convert", "writes a model with other weights: a folder, a GGUF, or a .m",
      [options] { return RunConvert(*options); });
  convert
      .add_option("MODEL", options->convert.model,
                  "folder of safetensors, GGUF, .m of distributed-llama, or "
                  "a hub's ORG/NAME[@REVISION][:QUANT]")
      ->required();
  convert
      .add_option("OUT", options->convert.out,
                  "folder to make, NAME.gguf, or NAME.m of distributed-llama")
      ->required();
  convert
      .add_option(
          "--weights", options->weights,
          "the layers' matrices: stored (as they are in MODEL) or a type; in a "
          "folder also fp8, gptq or awq, rounded to the nearest; f32 in a GGUF "
          "or a .m alone, which has f32, q40 or q80. Default: stored for a "
          "file that becomes a folder, else q4_0")
      ->type_name(WeightsChoices());
  convert
      .add_option("--group-size", options->convert.group,
                  "columns with one scale, of gptq and awq: 32, 64 or 128 "
                  "(the most that fits all matrices)")
      ->check(CLI::IsMember({32, 64, 128}));
  convert.add_option("--weights-for", options->rules,
                     "REGEX=TYPE, several times: matrices whose name in "
                     "safetensors it finds, embedding and head too; the "
                     "first counts");
  convert.add_option("--pre-tokenizer", options->convert.pre_tokenizer,
                     "a folder as GGUF: tokenizer.ggml.pre, as llama.cpp "
                     "calls it; found by the tokenizer unless given");
  convert.add_option("--keep", options->keep,
                     "REGEX: such matrices become BF16");
  convert
      .add_option("--importance", options->importance,
                  "file of text: columns that it uses more keep a smaller "
                  "error (runs it through MODEL)")
      ->check(CLI::ExistingFile);
  convert
      .add_option("--threads", options->convert.threads,
                  "that quantise (one for each CPU)")
      ->check(Within(1, 1024));
  convert
      .add_option("--shard-gb", options->shard_gb,
                  "aim of one file's size, in 10^9 bytes")
      ->check(CLI::Range(0.001, 1000.0))
      ->capture_default_str();
}

}  // namespace sluice::cli
