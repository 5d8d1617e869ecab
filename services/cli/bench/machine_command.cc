#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>
#include <sstream>

#include "common/base/text_file.h"
#include "common/tensor/weight_format.h"
#include "common/tools/measure/measure_rates.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/format.h"

namespace sluice::cli {
namespace {

struct MachineBenchOptions {
  measure::RateOptions rates;
  std::string json_path;
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

Status RunMachineBench(const MachineBenchOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const placement::MachineRates rates,
                          measure::MeasureRates(options.rates));
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
  app.add_option("--json", options->json_path,
                 "for rates = \"FILE\" of plan's --machines");
}

}  // namespace sluice::cli
