#ifndef SLUICE_SERVICES_CLI_CLUSTERS_H_
#define SLUICE_SERVICES_CLI_CLUSTERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "services/cli/cluster_file.h"

namespace sluice::cli {

// A cluster of this user, by its run folder.
struct KnownCluster {
  std::string name;  // of a folder in the state folder, else the folder's path
  std::string run_dir;
  ClusterFile file;

  int CountRunning() const;  // of its processes on this machine
  // Returns whether a process of it runs here, its supervisor included.
  bool IsAlive() const;
};

// What a look at a cluster shows.
struct ClusterState {
  std::string state;  // ready, loading, not ready, unknown or dead
  std::string why;    // it is not ready; empty if it is
};
ClusterState LookAt(const KnownCluster& cluster);

// Returns the clusters whose cluster.json is in a folder of the state folder,
// or in one that the launcher has linked there, by name. Removes links to
// folders without a cluster. Clusters of unreadable files, and of files that
// ReadClusterFile does not trust, are passed over, and `problems` gets a line
// for each.
std::vector<KnownCluster> ListClusters(std::vector<std::string>& problems);

// Returns the run folder that a user names: by the name of a folder in the
// state folder, or by a path, which has a '/'.
std::string RunDirOf(const std::string& name);

// Returns the run folder of the cluster meant by `name`; of an empty one, that
// of the one cluster there is. NOT_FOUND if there is none, FAILED_PRECONDITION
// with the names if there are several.
StatusOr<std::string> ChooseRunDir(const std::string& name);

// Returns the bytes in memory of the processes that run here.
uint64_t ResidentBytes(const KnownCluster& cluster);

// Returns the seconds since an ISO time, as Python's isoformat() writes it;
// negative: it is none.
double SecondsSince(const std::string& iso_time);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_CLUSTERS_H_
