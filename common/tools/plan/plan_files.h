#ifndef SLUICE_COMMON_TOOLS_PLAN_PLAN_FILES_H_
#define SLUICE_COMMON_TOOLS_PLAN_PLAN_FILES_H_

#include <string>

#include "common/base/status.h"
#include "common/placement/cluster_plan.h"

namespace sluice::plan {

// Who starts a cluster.
enum class Starter { kUp, kCompose, kKubernetes, kSlurm };
// "up", "compose", "kubernetes" or "slurm"; INVALID_ARGUMENT for another name.
StatusOr<Starter> ParseStarter(const std::string& name);

// What starts a planned cluster.
struct FilesRequest {
  std::string model;             // the path, as processes read it
  std::string weights = "auto";  // of --weights; empty: not named
  const placement::PlanRequest* request = nullptr;
  const placement::ClusterPlan* plan = nullptr;
};

// Returns what `starter` takes, with a comment that says how:
// up           the command line of deploy/local/up for one machine, of several
//              the file of `up --hosts`, or, with hosts of experts, the
//              command of every process;
// compose      an override of docker/compose.yaml, to be written beside it;
// kubernetes   a kustomization.yaml for a folder of k8s/overlays;
// slurm        the command line of deploy/slurm/sluice.sbatch.
// INVALID_ARGUMENT for hosts of experts with slurm.
StatusOr<std::string> PlanFile(Starter starter, const FilesRequest& files);

}  // namespace sluice::plan

#endif  // SLUICE_COMMON_TOOLS_PLAN_PLAN_FILES_H_
