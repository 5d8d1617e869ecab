#include "tests/simulation/gateway_process.h"

#include <utility>

#include "tests/simulation/network.h"

namespace sluice::simulation {
namespace {

// As services/gateway has it.
constexpr Duration kStagesDrain = std::chrono::seconds(1);

}  // namespace

GatewayProcess::GatewayProcess(const GatewaySetup& setup, Process* process)
    : setup_(setup), process_(process) {}

void GatewayProcess::Start() {
  World::Get().Spawn(process_, [self = shared_from_this()] {
    self->Run();
    self->ended_ = true;
  });
}

void GatewayProcess::Wake() {
  World::Get().Spawn(process_, [self = shared_from_this()] {
    MutexLock lock(self->mutex_);
    self->wake_.NotifyAll();
  });
}

void GatewayProcess::Crash() {
  if (process_->dead()) return;
  for (const auto& [id, client] : clients_) {
    if (!client->ended()) client->Leave();
  }
  process_->Die();
  Network::Get().Cut(process_, false);
  Wake();
}

void GatewayProcess::Leave(Duration limit) {
  if (!leave_limit_.has_value()) leave_limit_ = limit;
  Wake();
}

void GatewayProcess::Submit(
    std::vector<std::shared_ptr<Client>> choices,
    std::function<void(const Status&)> refused,
    std::function<void(const std::shared_ptr<Client>&)> accepted) {
  World::Get().Spawn(
      process_, [self = shared_from_this(), choices = std::move(choices),
                 refused = std::move(refused), accepted = std::move(accepted)] {
        if (!self->open_)
          return refused(Unavailable("the gateway is not there"));
        ++self->users_;
        for (const auto& client : choices) {
          const auto id = self->engine_->Submit(client->request(), client);
          if (!id.ok()) {
            refused(id.status());
            break;
          }
          self->clients_.emplace_back(*id, client);
          accepted(client);
          if (self->process_->dead() && !client->ended()) client->Leave();
        }
        --self->users_;
      });
}

void GatewayProcess::Cancel(const std::shared_ptr<Client>& client) {
  World::Get().Spawn(process_, [self = shared_from_this(), client] {
    if (!self->open_) return;
    ++self->users_;
    for (const auto& [id, one] : self->clients_) {
      if (one != client) continue;
      client->OnCancelled();
      self->engine_->Cancel(id);
      break;
    }
    --self->users_;
  });
}

void GatewayProcess::Run() {
  auto pipeline = PipelineAssembler::Create(setup_.pipeline);
  if (!pipeline.ok()) return World::Get().Fail(Message(pipeline.status()));
  pipeline_ = *std::move(pipeline);
  engine_ = std::make_unique<EngineLoop>(setup_.engine, &pipeline_->plans());
  const Status started = engine_->Start();
  if (!started.ok()) return World::Get().Fail(Message(started));
  pipeline_->Start(CallbacksTo(engine_.get()));
  open_ = true;
  {
    MutexLock lock(mutex_);
    while (!process_->dead() && !leave_limit_.has_value()) wake_.Wait(mutex_);
  }
  if (!process_->dead()) {
    engine_->BeginDrain();
    (void)engine_->WaitIdle(Clock::now() + *leave_limit_);
  }
  open_ = false;
  engine_->Stop();
  counters_ = engine_->Stats();
  pipeline_->Drain(Clock::now() + kStagesDrain);
  status_ = pipeline_->status();
  pipeline_->Stop();
  if (!process_->dead()) {
    process_->Die();
    Network::Get().Cut(process_, false);
  }
  while (process_->calls > 0 || users_ > 0) {
    World::Get().Sleep(std::chrono::milliseconds(10));
  }
  engine_ = nullptr;
  pipeline_ = nullptr;
}

}  // namespace sluice::simulation
