#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>

#include "common/base/text_file.h"
#include "common/model_config/described_model.h"
#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/machine_rates.h"
#include "common/tensor/weight_format.h"
#include "common/tools/measure/measure_rates.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/format.h"
#include "services/cli/model_rates.h"

namespace sluice::cli {
namespace {

struct MachineBenchOptions {
  measure::RateOptions rates;
  std::string model;  // measured with its types; empty: with those of `rates`
  WeightsMode weights = WeightsMode::kAuto;  // of the model
  std::string json_path;
  bool keep = false;  // what the file has, if it is this machine's
};

StatusOr<std::vector<kernels::WeightType>> ParseTypes(const std::string& text) {
  std::vector<kernels::WeightType> types;
  std::istringstream in(text);
  for (std::string name; std::getline(in, name, ',');) {
    const auto same = [&name](const WeightFormat& format) {
      return std::equal(name.begin(), name.end(), format.name.begin(),
                        format.name.end(),
                        [](unsigned char a, unsigned char b) {
                          return std::tolower(a) == std::tolower(b);
                        });
    };
    const auto found =
        std::find_if(kWeightFormats.begin(), kWeightFormats.end(), same);
    if (found == kWeightFormats.end()) {
      return InvalidArgument("there is no type '", name, "'");
    }
    types.push_back(found->type);
  }
  return types;
}

std::string RatesText(const placement::MachineRates& rates) {
  std::string text = Format(
      "%s, isa %s, %d threads\nread %.1f GB/s; byte products %.0f Gop/s, F32 "
      "%.0f Gop/s; fork and join %.2f us; a wake %.1f us; cache %.1f MB\n\n",
      rates.cpu.c_str(), rates.isa.c_str(), rates.threads, rates.read_gb_per_s,
      rates.byte_gop_per_s, rates.f32_gop_per_s, rates.join_seconds * 1e6,
      rates.wake_seconds * 1e6, rates.cache_bytes * 1e-6);
  text += Format("%-8s %-8s", "Gop/s", "from");
  for (const int32_t rows : placement::kRateRows) {
    text += Format(" %8d", rows);
  }
  text += " rows\n";
  for (const placement::ProductRate& rate : rates.products) {
    for (const auto& [from, times] : {std::pair("memory", &rate.from_memory),
                                      std::pair("cache", &rate.from_cache)}) {
      text += Format("%-8s %-8s", std::string(FormatOf(rate.type).name).c_str(),
                     from);
      for (size_t i = 0; i < times->size(); ++i) {
        text += Format(" %8.1f", 2e-9 * placement::kRateRows[i] / (*times)[i]);
      }
      text += "\n";
    }
  }
  return text;
}

// Returns what is measured: with a model, products of its types and shape.
StatusOr<measure::RateOptions> Wanted(const MachineBenchOptions& options) {
  if (options.model.empty()) return options.rates;
  SLUICE_ASSIGN_OR_RETURN(const auto model,
                          DescribeModel(options.model, std::nullopt));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_RETURN_IF_ERROR(CheckTensors(config, *model));
  measure::RateOptions rates = RatesFor(config, *model, options.weights);
  rates.threads = options.rates.threads;
  rates.isa = options.rates.isa;
  rates.rounds = options.rates.rounds;
  return rates;
}

// Whether the file has this machine's rates; false for a file of any other
// content, or none.
StatusOr<bool> IsMeasured(const std::string& path,
                          const measure::RateOptions& wanted) {
  const auto text = ReadTextFile(path);
  if (!text.ok()) return false;
  const auto rates = placement::ParseRates(*text);
  if (!rates.ok()) return false;
  return measure::AreCurrent(*rates, wanted);
}

Status RunMachineBench(const MachineBenchOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const measure::RateOptions wanted, Wanted(options));
  if (options.keep) {
    SLUICE_ASSIGN_OR_RETURN(const bool is_measured,
                            IsMeasured(options.json_path, wanted));
    if (is_measured) return OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(const placement::MachineRates rates,
                          measure::MeasureRates(wanted));
  std::fputs(RatesText(rates).c_str(), stdout);
  if (options.json_path.empty()) return OkStatus();
  return WriteTextFile(options.json_path, placement::RatesJson(rates));
}

}  // namespace

void AddBenchMachine(CommandLine& sluice) {
  const auto options = std::make_shared<MachineBenchOptions>();
  using kernels::WeightType;
  options->rates.types = {WeightType::kF32,  WeightType::kBf16,
                          WeightType::kE4m3, WeightType::kE4m3Wide,
                          WeightType::kQ8_0, WeightType::kQ4_0,
                          WeightType::kQ4_1, WeightType::kQ4K,
                          WeightType::kQ6K,  WeightType::kMxfp4};
  CLI::App& app = sluice.AddPart(
      "bench", "machine", "what this machine can do, for sluice plan",
      [options] { return RunMachineBench(*options); });
  app.add_option("--threads", options->rates.threads,
                 "that compute (one per core)")
      ->check(Within(1, 1024));
  app.add_option("--isa", options->rates.isa, "as of bench kernels");
  app.add_option("--rounds", options->rates.rounds,
                 "of which medians are told (5)")
      ->check(Within(1, 1000));
  AddParsed(app, "--types", options->rates.types, ParseTypes,
            "f32,bf16,..: of weights whose products are measured");
  CLI::Option* const model =
      app.add_option("--model", options->model,
                     "folder or GGUF: its types, with matrices of its shape")
          ->excludes("--types");
  AddParsed(app, "--weights", options->weights, ParseWeightsMode,
            "as stages take it, of the model")
      ->needs(model);
  CLI::Option* const json =
      app.add_option("--json", options->json_path,
                     "for rates = \"FILE\" of plan's --machines");
  app.add_flag("--keep", options->keep,
               "measure nothing if the file has this processor's rates, with "
               "as many threads and of all types")
      ->needs(json);
}

}  // namespace sluice::cli
