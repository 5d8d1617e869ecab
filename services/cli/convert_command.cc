#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/text_file.h"
#include "common/convert/convert_model.h"
#include "common/importance/measure_importance.h"
#include "common/text/tokenizer.h"
#include "common/weights/quantize.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"

namespace sluice::cli {
namespace {

constexpr char kStored[] = "stored";

double Megabytes(uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

void PrintReport(const ConvertOptions& options, const ConvertReport& report) {
  double worst = 0;
  double sum = 0;
  int quantised = 0;
  for (const ConvertedMatrix& matrix : report.matrices) {
    const bool is_quantised = BlocksOf(matrix.type).has_value();
    if (!is_quantised) continue;
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

// The type of this name, in small letters as for --weights.
StatusOr<weights::DType> TypeOf(const std::string& name) {
  std::string known;
  for (int i = 0; i <= static_cast<int>(weights::DType::kIq4Xs); ++i) {
    const auto type = static_cast<weights::DType>(i);
    if (!weights::CanQuantize(type)) continue;
    std::string small(ToString(type));
    std::transform(small.begin(), small.end(), small.begin(), [](char c) {
      return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    });
    if (small == name) return type;
    known += Cat(known.empty() ? "" : ", ", small);
  }
  return InvalidArgument("type '", name, "' is not known; known are ", known);
}

// Returns the type of the layers' matrices; nothing: as they are stored.
StatusOr<std::optional<weights::DType>> ChosenType(
    const CommandOptions& options) {
  std::string name = options.weights;
  if (name.empty()) {
    const auto config =
        std::filesystem::path(options.convert.model) / "config.json";
    std::error_code ignored;
    const bool keeps = !options.convert.out.ends_with(".gguf") &&
                       !std::filesystem::exists(config, ignored);
    name = keeps ? kStored : "q4_0";
  }
  if (name == kStored) return std::optional<weights::DType>();
  SLUICE_ASSIGN_OR_RETURN(const weights::DType type, TypeOf(name));
  return std::optional<weights::DType>(type);
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
                            TypeOf(rule.substr(at + 1)));
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
  SLUICE_ASSIGN_OR_RETURN(options.convert.type, ChosenType(options));
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

}  // namespace

void AddConvert(CommandLine& sluice) {
  const auto options = std::make_shared<CommandOptions>();
  CLI::App& convert = sluice.Add(
      "convert", "writes a model with other weights: a folder, or a GGUF",
      [options] { return RunConvert(*options); });
  convert
      .add_option("MODEL", options->convert.model,
                  "folder of safetensors, GGUF, or .m of distributed-llama")
      ->required();
  convert
      .add_option("OUT", options->convert.out, "folder to make, or NAME.gguf")
      ->required();
  convert.add_option(
      "--weights", options->weights,
      "the layers' matrices: stored (as they are in MODEL), bf16, q8_0, q4_0, "
      "q4_1, q5_0, q5_1, iq4_nl, mxfp4, q2_k to q6_k or iq4_xs; in a GGUF "
      "also f32. Default: stored for a file that becomes a folder, else q4_0");
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
