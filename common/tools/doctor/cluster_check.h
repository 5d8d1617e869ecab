#ifndef SLUICE_COMMON_TOOLS_DOCTOR_CLUSTER_CHECK_H_
#define SLUICE_COMMON_TOOLS_DOCTOR_CLUSTER_CHECK_H_

#include <optional>
#include <string>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/tools/doctor/finding.h"

namespace sluice::doctor {

// A process that cluster.json lists.
struct KnownProcess {
  std::string name;  // "stage 1"
  bool running = false;
  std::string log;  // path; may be empty
};

// An answer of the gateway; status 0: none, and `body` says why.
struct PageAnswer {
  int status = 0;
  std::string body;
};

// What is known of a cluster from outside.
struct ClusterFacts {
  std::string url;
  std::vector<KnownProcess> processes;
  PageAnswer ready;    // of /readyz
  PageAnswer cluster;  // of /cluster
};

// Names every process that is dead, with the last complaint of its log, and
// every stage that is not ready, with what it says; a cluster that is ready is
// one finding.
Findings JudgeCluster(const ClusterFacts& facts);

// Returns the last line of a log that complains (a warning, an error, a failed
// check), else the last line; empty for a log that is empty or not readable.
std::string LastComplaint(const std::string& log);

}  // namespace sluice::doctor

#endif  // SLUICE_COMMON_TOOLS_DOCTOR_CLUSTER_CHECK_H_
