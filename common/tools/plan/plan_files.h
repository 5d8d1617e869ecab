#ifndef SLUICE_COMMON_TOOLS_PLAN_PLAN_FILES_H_
#define SLUICE_COMMON_TOOLS_PLAN_PLAN_FILES_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/placement/cluster_plan.h"

namespace sluice::plan {

// Who starts a cluster.
enum class Starter { kUp, kCompose, kKubernetes, kSlurm, kSystemd };
// "up", "compose", "kubernetes", "slurm" or "systemd"; INVALID_ARGUMENT for
// another name.
StatusOr<Starter> ParseStarter(const std::string& name);

// Returns what a node of `memory` bytes gives to the processes that `starter`
// runs. A kubelet keeps some for itself and the system (allocatable), and a
// Slurm node's RealMemory is what its kernel leaves. Plan with that much.
uint64_t GivenMemory(Starter starter, uint64_t memory);

// What starts a planned cluster.
struct FilesRequest {
  // What processes read: a path on their machines, or with `of_hub` a hub's
  // ORG/NAME[@REVISION][:QUANT].
  std::string model;
  bool of_hub = false;
  std::string weights = "auto";  // of --weights; empty: not named
  const placement::PlanRequest* request = nullptr;
  const placement::ClusterPlan* plan = nullptr;
};

// Returns what `starter` takes, with a comment that says how:
// up           the command line of deploy/local/up for this machine, else the
//              file of `up --hosts`;
// compose      an override of docker/compose.yaml, to be written beside it;
// kubernetes   a kustomization.yaml for a folder of k8s/overlays;
// slurm        a script that submits deploy/slurm/sluice.sbatch;
// systemd      a script that writes and starts the units of a machine.
// Each starts the planned stages with their layers, devices and options, and
// machines without a stage or experts are left out. Machines of one address are
// one box. INVALID_ARGUMENT names what of the plan the starter cannot start.
StatusOr<std::string> PlanFile(Starter starter, const FilesRequest& files);

}  // namespace sluice::plan

#endif  // SLUICE_COMMON_TOOLS_PLAN_PLAN_FILES_H_
