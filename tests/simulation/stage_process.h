#ifndef SLUICE_TESTS_SIMULATION_STAGE_PROCESS_H_
#define SLUICE_TESTS_SIMULATION_STAGE_PROCESS_H_

#include <grpcpp/impl/service_type.h>

#include <memory>
#include <optional>

#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"
#include "common/pipeline/stage/stage_session.h"
#include "common/stage/stage.h"
#include "common/stage/stage_loop.h"
#include "tests/simulation/world.h"

namespace sluice::simulation {

struct StageSetup {
  StageInfo info;  // first_layer and last_layer: of the start; empty: none
  bool assignable = false;
  rpc::TransportOptions transport;
  int32_t max_steps_in_flight = 16;
  Duration step_time{};  // the longest
  Duration load_time{};  // likewise
  int no_host = 0;       // see Stage
  int failed_loads = 0;  // of a thousand that a gateway asks for
  // KV blocks that each layer takes from the stage's limit.
  int blocks_per_layer = 0;
};

// One life of a stage's process: what services/stage builds, on the simulated
// network.
class StageProcess : public std::enable_shared_from_this<StageProcess> {
 public:
  StageProcess(const StageSetup& setup, Process* process);

  // Begins; the process' own fibres do the rest.
  void Start();
  // The process is gone at once; see Network::Cut.
  void Crash(bool silently);
  // As SIGTERM: the stage announces its end, which comes within `limit`.
  void Leave(Duration limit);
  // Nothing of it is left.
  bool ended() const { return ended_; }
  Process* process() const { return process_; }

 private:
  void Run();
  void Load();
  Status LoadLayers();
  void Unload();
  bool TakeWanted();
  void Wake();

  const StageSetup setup_;
  Process* const process_;
  std::shared_ptr<StageSession> session_;
  std::unique_ptr<StepOutputSink> sink_;
  std::unique_ptr<grpc::Service> service_;
  NamedThread loader_;
  StagePlace place_;  // the loader's
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ = false;
  std::optional<Duration> leave_limit_;
  std::optional<StagePlace> wanted_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<StageLoop> loop_;
  bool ended_ = false;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_STAGE_PROCESS_H_
