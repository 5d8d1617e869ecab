#ifndef SLUICE_TESTS_TESTING_LOCAL_CLUSTER_H_
#define SLUICE_TESTS_TESTING_LOCAL_CLUSTER_H_

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/engine/engine_loop.h"
#include "common/pipeline/gateway/pipeline_assembler.h"
#include "common/stage/stage.h"
#include "services/stage/stage_server.h"
#include "tests/testing/local_pipeline.h"

namespace sluice::testing {

struct LocalClusterOptions {
  StageOptions stage;  // all but the layers
  int stages = 1;
  // With gRPC, one per stage: the stages load the layers that they are
  // assigned. Empty: a split by bytes, which the stages know.
  std::vector<StagePlace> places = {};
  EngineOptions engine;
  bool grpc = true;  // else the stages are chained in process
  // With gRPC; shorter than in production where a test waits for silence.
  Duration peer_timeout = std::chrono::seconds(10);
  Duration suspect_after = std::chrono::seconds(2);
  Duration heartbeat = std::chrono::milliseconds(250);
};

// An engine with its stages, all in this process: over gRPC on loopback
// ports, or chained directly. The engine is up when Start returns.
class LocalCluster {
 public:
  static StatusOr<std::unique_ptr<LocalCluster>> Start(
      LocalClusterOptions options);
  ~LocalCluster();

  EngineLoop& engine() { return *engine_; }
  // Null without gRPC.
  PipelineAssembler* pipeline() { return client_.get(); }
  const std::string& address(int stage) const;

  // With gRPC: ends a stage as its process's end would, and starts it again
  // on the same port.
  void StopStage(int stage);
  Status RestartStage(int stage);

  // Whether the pipeline is up; waits until `deadline`.
  bool WaitReady(TimePoint deadline);
  bool WaitNotReady(TimePoint deadline);

 private:
  explicit LocalCluster(LocalClusterOptions options);
  Status StartInProcess();
  Status StartOverGrpc();
  StatusOr<std::unique_ptr<stage::StageServer>> StartStage(
      int stage, const std::string& listen);

  const LocalClusterOptions options_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<stage::StageServer>> servers_;
  std::unique_ptr<LocalPipeline> chained_;
  std::unique_ptr<EngineObserver> observer_;
  std::unique_ptr<PipelineAssembler> client_;
  std::unique_ptr<EngineLoop> engine_;
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TESTING_LOCAL_CLUSTER_H_
