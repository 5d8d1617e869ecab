// The command eval costs.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/text_file.h"
#include "common/tools/eval/cost_table.h"
#include "common/tools/load/server_queries.h"
#include "services/cli/cluster_file.h"
#include "services/cli/command_line.h"
#include "services/cli/commands.h"
#include "services/cli/eval_plots.h"
#include "services/cli/model_cluster.h"

namespace sluice::cli {
namespace {

struct CostsOptions {
  Words models, weights, up;
  std::string reference, out, plots;
  int64_t rate_tokens = 64;
};

// Returns the bytes of weights that the cluster's processes tell; 0: none
// tells.
uint64_t WeightBytes(const std::string& run_dir) {
  const auto file = ReadClusterFile(run_dir);
  if (!file.ok()) return 0;
  double bytes = 0;
  for (const ClusterProcess& process : file->processes) {
    const auto base = http::BaseUrl::Parse("http://" + process.metrics_address);
    if (process.metrics_address.empty() || !base.ok()) continue;
    const auto metrics = load::FetchMetrics(*base);
    if (!metrics.ok()) continue;
    for (const char* name :
         {"sluice_stage_weights_bytes", "sluice_expert_weights_bytes"}) {
      const auto found = metrics->find(name);
      if (found != metrics->end()) bytes += found->second;
    }
  }
  return static_cast<uint64_t>(bytes);
}

// Starts a cluster of a form, compares it with the reference, and ends it.
StatusOr<eval::CostRow> MeasureForm(
    const CostsOptions& options, const std::string& model,
    const std::string& weights, const std::string& form,
    const std::vector<eval::ReferencePrompt>& reference) {
  Interrupts interrupts;
  ModelClusterOptions cluster_options;
  cluster_options.model = model;
  cluster_options.up = {"--stages", "1", "--weights", weights};
  cluster_options.up.insert(cluster_options.up.end(), options.up.begin(),
                            options.up.end());
  SLUICE_ASSIGN_OR_RETURN(const auto cluster,
                          ModelCluster::Open(cluster_options, interrupts));
  SLUICE_ASSIGN_OR_RETURN(const std::string served,
                          load::ServedModelId(cluster->base()));
  const eval::EvalApi api(cluster->base(), served);
  size_t asked = 0;
  const bool terminal = isatty(STDERR_FILENO) == 1;
  const auto on_prompt = [&](const std::string& name) {
    const int signal = interrupts.Take();
    if (signal != 0) return InterruptedBy(signal);
    const std::string line =
        Cat(form, ": ", ++asked, " of ", reference.size(), ", ", name);
    std::fprintf(stderr, terminal ? "\r%.79s\x1b[K" : "%s\n", line.c_str());
    return OkStatus();
  };
  eval::CostRow row;
  row.form = form;
  row.bytes = WeightBytes(cluster->run_dir());
  auto found = eval::CompareWithReference(api, reference, {}, on_prompt);
  if (terminal) std::fputs("\r\x1b[K", stderr);
  if (!found.ok()) return found.status();
  row.found = *std::move(found);
  SLUICE_ASSIGN_OR_RETURN(
      row.tokens_per_s,
      eval::MeasureRate(api, eval::PromptJson(reference[0].ids),
                        options.rate_tokens));
  return row;
}

Status WriteCosts(const CostsOptions& options,
                  const std::vector<eval::CostRow>& rows) {
  std::string report =
      Cat("# What forms of weights cost\n\nAgainst ", options.reference,
          ". Divergence is Kullback-Leibler's from the reference over its "
          "likeliest "
          "ids, in nats per position; greedy ids are those before an answer's "
          "first "
          "other id.\n\n",
          eval::CostTable(rows));
  SLUICE_ASSIGN_OR_RETURN(
      const std::string images,
      WritePlots(options.plots, options.out,
                 {{"costs.svg", eval::CostPlot(rows)},
                  {"divergence.svg", eval::DivergenceByPosition(rows)}}));
  report += images;
  if (options.out.empty()) {
    std::fputs(report.c_str(), stdout);
    return OkStatus();
  }
  SLUICE_RETURN_IF_ERROR(WriteTextFile(options.out, report));
  std::fprintf(stderr, "wrote %s\n", options.out.c_str());
  return OkStatus();
}

Status RunCosts(const CostsOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const auto reference,
                          eval::ReadReference(options.reference));
  std::vector<eval::CostRow> rows;
  std::string failed;
  for (const std::string& model : options.models) {
    for (const std::string& weights : options.weights) {
      std::string form = weights;
      if (options.models.size() > 1) {
        form = options.weights.size() > 1
                   ? Cat(FolderNameFor(model), " ", weights)
                   : FolderNameFor(model);
      }
      auto row = MeasureForm(options, model, weights, form, reference);
      if (row.ok()) {
        rows.push_back(*std::move(row));
        continue;
      }
      if (row.status().code() == StatusCode::kCancelled) return row.status();
      std::fprintf(stderr, "%s: %s\n", form.c_str(),
                   Message(row.status()).c_str());
      failed += Cat(failed.empty() ? "" : ", ", form);
    }
  }
  if (!rows.empty()) SLUICE_RETURN_IF_ERROR(WriteCosts(options, rows));
  if (failed.empty()) return OkStatus();
  return FailedPrecondition("could not be measured: ", failed);
}

}  // namespace

void AddEvalCosts(CommandLine& sluice) {
  const auto options = std::make_shared<CostsOptions>();
  CLI::App& costs = sluice.AddPart(
      "eval", "costs", "forms of a model's weights beside one reference",
      [options] { return RunCosts(*options); });
  costs
      .add_option("MODEL", options->models,
                  "one or more: a Hugging Face folder or a GGUF, a hub's "
                  "ORG/NAME[@REVISION][:QUANT], or default")
      ->required();
  costs
      .add_option("--reference", options->reference,
                  "as eval takes it; make-reference makes one")
      ->required();
  options->weights = {"auto"};
  costs
      .add_option("--weights", options->weights,
                  "as up takes them, with commas: f32,q8_0,q4_0 (auto)")
      ->delimiter(',')
      ->take_all();
  costs
      .add_option("--rate-tokens", options->rate_tokens,
                  "of the answer whose tokens/s is told (64)")
      ->check(Within(2, 4096));
  costs.add_option("--out", options->out, "the table, in Markdown (stdout)");
  costs.add_option("--plots", options->plots,
                   "a folder: costs.svg, divergence.svg");
  sluice.TakeUpOptions(costs.get_name(), options->up);
  costs.footer(
      "A cluster of one stage is started for each form, one after the other. "
      "Words\nbehind -- are options of sluice up, as in: -- --activations f32");
}

}  // namespace sluice::cli
