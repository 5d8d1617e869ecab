#include "tests/testing/local_cluster.h"

#include <utility>

#include "tests/testing/holds_within.h"

namespace sluice::testing {
namespace {

constexpr auto kStartTime = std::chrono::seconds(60);

// Polls: what is waited for happens in threads that know no test.
template <typename Condition>
bool WaitUntil(TimePoint deadline, Condition condition) {
  return HoldsWithin(deadline - Clock::now(), condition);
}

}  // namespace

LocalCluster::LocalCluster(LocalClusterOptions options)
    : options_(std::move(options)) {}

StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    LocalClusterOptions options) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(std::move(options)));
  SLUICE_RETURN_IF_ERROR(cluster->options_.grpc ? cluster->StartOverGrpc()
                                                : cluster->StartInProcess());
  return cluster;
}

LocalCluster::~LocalCluster() {
  if (engine_ != nullptr) engine_->Stop();
  if (client_ != nullptr) client_->Stop();
  if (chained_ != nullptr) chained_->Stop();
  servers_.clear();
}

Status LocalCluster::StartInProcess() {
  SLUICE_ASSIGN_OR_RETURN(chained_,
                          LocalPipeline::Load(options_.stage, options_.stages));
  engine_ = std::make_unique<EngineLoop>(options_.engine, chained_.get());
  SLUICE_RETURN_IF_ERROR(engine_->Start());
  chained_->ConnectTo(engine_.get());
  return OkStatus();
}

StatusOr<std::unique_ptr<stage::StageServer>> LocalCluster::StartStage(
    int stage, const std::string& listen) {
  stage::StageServerOptions options;
  options.listen = listen;
  options.layers.assigned = !options_.places.empty();
  options.layers.index = stage;
  options.layers.parts = options_.stages;
  options.stage = options_.stage;
  options.transport.peer_timeout = options_.peer_timeout;
  SLUICE_ASSIGN_OR_RETURN(auto server,
                          stage::StageServer::Start(std::move(options)));
  SLUICE_RETURN_IF_ERROR(server->WaitLoaded(Clock::now() + kStartTime));
  return server;
}

Status LocalCluster::StartOverGrpc() {
  PipelineOptions pipeline;
  for (int i = 0; i < options_.stages; ++i) {
    SLUICE_ASSIGN_OR_RETURN(auto server, StartStage(i, "127.0.0.1:0"));
    addresses_.push_back(server->address());
    servers_.push_back(std::move(server));
  }
  pipeline.stages = addresses_;
  pipeline.places = options_.places;
  pipeline.replica = options_.engine.replica;
  pipeline.steps_ahead = options_.engine.ahead_within > Duration::zero();
  pipeline.transport.peer_timeout = options_.peer_timeout;
  pipeline.suspect_after = options_.suspect_after;
  pipeline.heartbeat = options_.heartbeat;
  SLUICE_ASSIGN_OR_RETURN(client_,
                          PipelineAssembler::Create(std::move(pipeline)));
  engine_ = std::make_unique<EngineLoop>(options_.engine, &client_->plans());
  SLUICE_RETURN_IF_ERROR(engine_->Start());
  observer_ = std::make_unique<EngineObserver>(engine_.get());
  client_->Start(observer_.get());
  if (!WaitReady(Clock::now() + kStartTime)) {
    return Unavailable("no pipeline: ", client_->status().message);
  }
  return OkStatus();
}

const std::string& LocalCluster::address(int stage) const {
  return addresses_[static_cast<size_t>(stage)];
}

void LocalCluster::StopStage(int stage) {
  servers_[static_cast<size_t>(stage)].reset();
}

Status LocalCluster::RestartStage(int stage) {
  SLUICE_ASSIGN_OR_RETURN(servers_[static_cast<size_t>(stage)],
                          StartStage(stage, address(stage)));
  return OkStatus();
}

bool LocalCluster::WaitReady(TimePoint deadline) {
  return WaitUntil(deadline, [this] {
    return (client_ == nullptr || client_->ready()) &&
           engine_->Progress().pipeline_up;
  });
}

bool LocalCluster::WaitNotReady(TimePoint deadline) {
  return WaitUntil(deadline, [this] {
    return (client_ != nullptr && !client_->ready()) ||
           !engine_->Progress().pipeline_up;
  });
}

}  // namespace sluice::testing
