#ifndef SLUICE_SERVICES_CLI_CLUSTER_FILE_H_
#define SLUICE_SERVICES_CLI_CLUSTER_FILE_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "services/cli/arguments.h"
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

// The run folder that --run-dir names, else the default one.
std::string RunDir(const Arguments& arguments);

// NOT_FOUND if no cluster runs in `run_dir`.
StatusOr<ClusterFile> ReadClusterFile(const std::string& run_dir);

// Where to send requests: --url, else the url of the run folder's cluster;
// with the key of ApiKey.
StatusOr<BaseUrl> FindGateway(const Arguments& arguments);

// The endpoint that --other names, with the key of --other-api-key and no
// other: the first endpoint's key is not for another host to see.
StatusOr<BaseUrl> OtherEndpoint(const Arguments& arguments);

// --api-key, else the environment's SLUICE_API_KEY, else empty.
std::string ApiKey(const Arguments& arguments);

// The id of the model that the gateway serves.
StatusOr<std::string> ServedModelId(const BaseUrl& base);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_CLUSTER_FILE_H_
