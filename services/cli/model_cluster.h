#ifndef SLUICE_SERVICES_CLI_MODEL_CLUSTER_H_
#define SLUICE_SERVICES_CLI_MODEL_CLUSTER_H_

#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/http/http_client.h"
#include "services/cli/child_process.h"
#include "services/cli/clusters.h"
#include "services/cli/command_line.h"
#include "services/cli/interrupts.h"

namespace sluice::cli {

// The file of the default model, as deploy/local/cluster/model.py fetches it.
inline constexpr char kDefaultModelFile[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

struct ModelClusterOptions {
  std::string model;  // a path, ORG/NAME[@REVISION][:QUANT], or "default"
  bool keep = false;  // a cluster that is started goes on without this process
  Words up;           // options of `up`; with any a cluster is started
  std::string api_key;
};

// A cluster that serves a model: a ready one of this user, or one that is
// started, with one stage unless options of `up` are given. What is started
// without `keep` ends with the object, and with this process, however that
// ends: the launcher reads a pipe from it. Threadless; `interrupts` of Open
// outlives the object.
class ModelCluster {
 public:
  // Says on stderr what is done; the launcher writes its progress there.
  // INVALID_ARGUMENT for options of `up` that it sets itself; InterruptedBy for
  // a signal, when nothing is left of what was started; the launcher's exit
  // code if it fails.
  static StatusOr<std::unique_ptr<ModelCluster>> Open(
      const ModelClusterOptions& options, Interrupts& interrupts);
  ~ModelCluster();
  ModelCluster(const ModelCluster&) = delete;
  ModelCluster& operator=(const ModelCluster&) = delete;

  const http::BaseUrl& base() const { return base_; }
  const std::string& run_dir() const { return run_dir_; }

 private:
  ModelCluster(Interrupts& interrupts, std::string name, std::string run_dir)
      : interrupts_(interrupts),
        name_(std::move(name)),
        run_dir_(std::move(run_dir)) {}

  Status Start(const ModelClusterOptions& options);
  // Waits until the launcher has written its first line, or has ended.
  Status AwaitAddress(const ModelClusterOptions& options);
  Status Connect(const std::string& api_key);
  void End();

  Interrupts& interrupts_;
  const std::string name_;
  const std::string run_dir_;
  int lock_ = -1;                           // of a run folder that is taken
  std::unique_ptr<ChildProcess> launcher_;  // of a cluster that ends with this
  http::BaseUrl base_;
};

// Waits while the cluster loads, and for as long as its --ready-timeout at
// most. Returns whether it is ready; InterruptedBy for a signal.
StatusOr<bool> AwaitReady(const KnownCluster& cluster, Interrupts& interrupts);

// Returns whether the cluster serves the model of that name.
bool Serves(const KnownCluster& cluster, const std::string& model);

// Returns the name of a run folder for a model: what it is called, of letters,
// digits and ".", "_", "-".
std::string FolderNameFor(const std::string& model);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_MODEL_CLUSTER_H_
