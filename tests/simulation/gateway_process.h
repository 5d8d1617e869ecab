#ifndef SLUICE_TESTS_SIMULATION_GATEWAY_PROCESS_H_
#define SLUICE_TESTS_SIMULATION_GATEWAY_PROCESS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/engine/engine_loop.h"
#include "common/pipeline/gateway/pipeline_assembler.h"
#include "tests/simulation/client.h"
#include "tests/simulation/world.h"

namespace sluice::simulation {

class GatewayProcess;

struct GatewaySetup {
  EngineOptions engine;
  PipelineOptions pipeline;
  // The other gateway of the same stages; empty: there is none.
  std::function<GatewayProcess*()> peer = nullptr;
};

// One life of a gateway's process: the engine and the assembler, joined as
// services/gateway joins them.
class GatewayProcess : public std::enable_shared_from_this<GatewayProcess> {
 public:
  GatewayProcess(const GatewaySetup& setup, Process* process);

  void Start();
  // The process is gone at once, and its clients with it.
  void Crash();
  // As SIGTERM: accepted requests go on, for at most `limit`.
  void Leave(Duration limit);
  bool ended() const { return ended_; }
  Process* process() const { return process_; }

  // The choices of one request, in a fibre of the process. The client of a
  // choice behind a refused one gets no event.
  void Submit(std::vector<std::shared_ptr<Client>> choices,
              std::function<void(const Status&)> refused,
              std::function<void(const std::shared_ptr<Client>&)> accepted);
  void Cancel(const std::shared_ptr<Client>& client);

  bool ready() const { return open_ && pipeline_->ready(); }
  // For people: the gateway's role and pipeline, and the states of its stages.
  std::string Describe() const;
  const EngineCounters& counters() const { return counters_; }
  uint64_t shrinks() const { return status_.shrinks; }
  uint64_t growths() const { return status_.growths; }
  uint64_t takeovers() const { return status_.takeovers; }

 private:
  void Run();
  void Wake();
  // As PeerGateways: asks the other gateway who leads, twice a second.
  void WatchPeer();
  void AskPeer();
  PeerLead own_lead() const;

  const GatewaySetup setup_;
  Process* const process_;
  std::unique_ptr<PipelineAssembler> pipeline_;
  std::unique_ptr<EngineLoop> engine_;
  bool open_ = false;  // both are there and not yet being ended
  int users_ = 0;      // fibres that use them
  Mutex mutex_;
  CondVar wake_;
  std::optional<Duration> leave_limit_;
  std::vector<std::pair<SequenceId, std::shared_ptr<Client>>> clients_;
  PeerLead peer_lead_ = PeerLead::kUnknown;
  int rounds_without_ = 0;   // an answer of a peer that leads
  bool answered_ = false;    // in this round
  EngineCounters counters_;  // at the end
  PipelineStatus status_;    // likewise
  bool ended_ = false;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_GATEWAY_PROCESS_H_
