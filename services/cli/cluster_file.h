#ifndef SLUICE_SERVICES_CLI_CLUSTER_FILE_H_
#define SLUICE_SERVICES_CLI_CLUSTER_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/http/http_client.h"
#include "services/cli/command_line.h"

namespace sluice::cli {

// One process as RUN_DIR/cluster.json lists it.
struct ClusterProcess {
  std::string host;  // of `up --hosts`; empty: this machine
  std::string role;
  int index = 0;
  int pid = 0;
  std::vector<std::string> argv;
  std::string address;
  std::string metrics_address;
  std::string log;

  // Returns whether a process with this pid and argv runs on this machine.
  bool IsRunning() const;
};

// The file of `sluice up`.
struct ClusterFile {
  std::string path;
  std::string url;
  std::string model;            // its path
  std::string model_given;      // as --model named it; empty: the default model
  std::string created;          // an ISO time
  std::string key_file;         // of the keys that requests need, or empty
  int64_t ready_timeout = 900;  // seconds, as --ready-timeout has them
  bool until_eof = false;       // it ends with the process that started it
  ClusterProcess supervisor;
  std::vector<ClusterProcess> processes;
  std::vector<ClusterProcess> remote;  // of all its hosts, none with a pid
};

// The endpoint of a command: --url, --run-dir and --api-key.
struct EndpointOptions {
  std::string url;      // empty: the url of the run folder's cluster
  std::string run_dir;  // empty: the default one
  std::string api_key;
};
void AddRunDir(CLI::App& app, EndpointOptions& options);    // and --api-key
void AddEndpoint(CLI::App& app, EndpointOptions& options);  // all of them

// Returns the folder of the run folders that were not named by a path.
std::string StateFolder();

// Reads RUN_DIR/cluster.json; `run_dir` empty: the default run folder.
// NOT_FOUND without a cluster; FAILED_PRECONDITION for a file that belongs
// neither to this user nor to root.
StatusOr<ClusterFile> ReadClusterFile(const std::string& run_dir);

// Returns the gateway's address, with the key: without one of the options, the
// first key of the cluster's own file, if this user may read that.
StatusOr<http::BaseUrl> FindGateway(const EndpointOptions& options);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_CLUSTER_FILE_H_
