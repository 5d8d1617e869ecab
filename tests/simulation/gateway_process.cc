#include "tests/simulation/gateway_process.h"

#include <utility>

#include "tests/simulation/network.h"

namespace sluice::simulation {
namespace {

// As services/gateway has it.
constexpr Duration kStagesDrain = std::chrono::seconds(1);
constexpr Duration kAsk = std::chrono::milliseconds(500);
constexpr int kRecoveringLeases = 3;

// The engine, and what the other gateway said.
class Observer : public EngineObserver {
 public:
  Observer(EngineLoop* engine, const PeerLead& peers)
      : EngineObserver(engine), peers_(peers) {}
  PeerLead LeadOfPeers() override { return peers_; }

 private:
  const PeerLead& peers_;
};

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

std::string GatewayProcess::Describe() const {
  if (!open_) return process_->name() + " is not there";
  const PipelineStatus status = pipeline_->status();
  std::string text = Cat(process_->name(), ", ", ToString(status.role), ": ",
                         status.ready ? "ready" : status.message);
  for (const auto* stages : {&status.stages, &status.spares}) {
    for (const StageStatus& stage : *stages) {
      text +=
          Cat("; ", stage.address, " ", stage.first_layer, "-",
              stage.last_layer, " ", ToString(stage.state), " ", stage.message);
    }
  }
  return text;
}

void GatewayProcess::Run() {
  auto pipeline = PipelineAssembler::Create(setup_.pipeline);
  if (!pipeline.ok()) return World::Get().Fail(Message(pipeline.status()));
  pipeline_ = *std::move(pipeline);
  engine_ = std::make_unique<EngineLoop>(setup_.engine, &pipeline_->plans());
  const Status started = engine_->Start();
  if (!started.ok()) return World::Get().Fail(Message(started));
  Observer observer(engine_.get(), peer_lead_);
  pipeline_->Start(&observer);
  open_ = true;
  NamedThread peers;
  if (setup_.peer) peers = NamedThread("peers", [this] { WatchPeer(); });
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
  peers.Join();
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

// The other gateways ---------------------------------------------------------

// What /readyz would say of this gateway's pipeline.
PeerLead GatewayProcess::own_lead() const {
  if (!open_ || pipeline_->role() != GatewayRole::kLeader) {
    return PeerLead::kNone;
  }
  const Duration down = pipeline_->status().down;
  if (down == Duration::zero()) return PeerLead::kUp;
  return down < kRecoveringLeases * setup_.pipeline.lease
             ? PeerLead::kRecovering
             : PeerLead::kNone;
}

void GatewayProcess::WatchPeer() {
  World& world = World::Get();
  while (open_ && !process_->dead()) {
    const bool leads = pipeline_->role() == GatewayRole::kLeader;
    if (!leads || pipeline_->status().down >= setup_.pipeline.lease) {
      answered_ = false;
      AskPeer();
      world.Sleep(kAsk);
      if (answered_) {
        rounds_without_ = 0;
      } else if (++rounds_without_ >= 2) {
        peer_lead_ = PeerLead::kNone;
      }
    } else {
      world.Sleep(kAsk);
    }
  }
}

void GatewayProcess::AskPeer() {
  const auto self = shared_from_this();
  GatewayProcess* const peer = setup_.peer();
  if (peer->process()->dead()) return;
  Network& network = Network::Get();
  network.Post(
      process_, peer->process(), [self, to = peer->shared_from_this()] {
        ++to->users_;  // the pipeline stays for so long
        const PeerLead lead = to->own_lead();
        --to->users_;
        if (lead == PeerLead::kNone) return;
        Network::Get().Post(to->process(), self->process(), [self, lead] {
          self->answered_ = true;
          self->peer_lead_ = lead;
        });
      });
}

}  // namespace sluice::simulation
