#ifndef SLUICE_SERVICES_CLI_PLAN_CLUSTER_H_
#define SLUICE_SERVICES_CLI_PLAN_CLUSTER_H_

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/placement/cluster_plan.h"
#include "common/placement/layer_loads.h"
#include "common/tools/hub/fetch_headers.h"
#include "common/weights/dtype.h"

namespace sluice::cli {

// `sluice plan` with machines: --machines or --machine.
struct ClusterPlanOptions {
  std::string machines_path;
  std::string machine;  // "here", "gpus" or figures
  int32_t count = 1;    // of `machine`
  double price = 0;     // of each, an hour
  std::string link;     // LATENCY_MS,GBIT
  int32_t context = 0;  // 0: the default, or the model's
  int32_t prompt = 0;
  std::vector<int32_t> streams;
  placement::PlanAim aim;  // of --for
  int32_t sequences = 0;   // 0: not given
  int32_t expert_replicas = 1;
  int32_t threads = 0;  // of this machine
  std::string write;    // for whom a file is written
  std::string source;   // of the processes' model; empty: the planned path
  std::string to;       // empty: stdout
  std::string svg_path;
  std::string json_path;

  bool given() const { return !machines_path.empty() || !machine.empty(); }
};

// What a plan is of.
struct PlannedModel {
  std::string path;            // of files with its headers at least
  std::vector<HubGguf> ggufs;  // of the hub's repository
  std::string hub;  // ORG/NAME@COMMIT[:QUANT] that these are of; may be empty
  std::optional<weights::DType> stored;  // of --weights, if it names a type
  std::string weights;                   // as --weights names it; may be empty
};

// Adds the options that go with machines.
void AddClusterPlan(CLI::App& plan, ClusterPlanOptions& options);

// Prints the plan of a cluster on the machines, and writes what is asked for.
// `stages` 0: one on each machine that makes the plan faster.
// `loads.max_step_tokens` 0: the stages' own choice.
Status RunClusterPlan(const PlannedModel& model,
                      const ClusterPlanOptions& options,
                      const LayerLoadOptions& loads, int32_t stages);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_PLAN_CLUSTER_H_
