#ifndef SLUICE_SERVICES_CLI_CLUSTER_FILE_H_
#define SLUICE_SERVICES_CLI_CLUSTER_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "services/cli/command_line.h"
#include "services/cli/http_client.h"

namespace sluice::cli {

// One process as RUN_DIR/cluster.json lists it.
struct ClusterProcess {
  std::string role;
  int index = 0;
  int pid = 0;
  std::vector<std::string> argv;
  std::string address;
  std::string metrics_address;
  std::string log;

  // Whether the process with this pid is still that one, by its argv.
  bool IsRunning() const;
};

// What deploy/local/up wrote.
struct ClusterFile {
  std::string path;
  std::string url;
  std::string model;
  std::vector<ClusterProcess> processes;
};

// Which cluster or endpoint a command asks: --url, --run-dir and --api-key.
struct EndpointOptions {
  std::string url;      // empty: that of the run folder's cluster
  std::string run_dir;  // empty: the default one
  std::string api_key;
};
void AddRunDir(CLI::App& app, EndpointOptions& options);    // and --api-key
void AddEndpoint(CLI::App& app, EndpointOptions& options);  // all of them

// NOT_FOUND if no cluster runs in `run_dir`; empty: the default run folder.
StatusOr<ClusterFile> ReadClusterFile(const std::string& run_dir);

// Where to send requests, with the key.
StatusOr<BaseUrl> FindGateway(const EndpointOptions& options);

// The id of the model that the gateway serves.
StatusOr<std::string> ServedModelId(const BaseUrl& base);

// The ids that /tokenize gives for `body`. NOT_FOUND or FAILED_PRECONDITION
// where the server has no such endpoint.
StatusOr<std::vector<int64_t>> Tokenize(const BaseUrl& base, const Json& body);

// Sums over labels, by metric name.
using Metrics = std::map<std::string, double>;

// The sums of a Prometheus text. Lines that are no samples are left out.
Metrics ParseMetrics(const std::string& text);

// Those of GET /metrics. UNAVAILABLE if nothing answers; FAILED_PRECONDITION
// with the status and the server's words ("401: ..") if it refuses.
StatusOr<Metrics> FetchMetrics(const BaseUrl& base);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_CLUSTER_FILE_H_
