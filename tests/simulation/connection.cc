#include "tests/simulation/connection.h"

#include <grpcpp/impl/service_type.h>

#include <algorithm>
#include <utility>

#include "tests/simulation/world.h"

namespace sluice::simulation {
namespace {

// Between two tries to open a connection on a way that is blocked.
constexpr Duration kKnockAgain = std::chrono::seconds(1);
constexpr Duration kFirstBackoff = std::chrono::milliseconds(100);
constexpr Duration kLongestBackoff = std::chrono::seconds(2);
// From a write to its end, where the stream has room.
constexpr Duration kWritten = std::chrono::microseconds(100);

grpc::Status Broken(const std::string& why) {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, why);
}

}  // namespace

// Pipe -----------------------------------------------------------------------

Pipe::Pipe(std::shared_ptr<Connection> connection, int to)
    : connection_(std::move(connection)), to_(to) {}

void Pipe::Send(std::function<void()> deliver, bool last) {
  Duration at = World::Get().now() + Network::Get().Latency();
  at = std::max(at, last_at_);
  if (last) {
    for (const auto& other : connection_->pipes_) {
      const auto pipe = other.lock();
      if (pipe != nullptr && pipe->to_ == to_) {
        at = std::max(at, pipe->last_at_);
      }
    }
  }
  last_at_ = at;
  frames_.push_back({at, std::move(deliver)});
  Arm();
}

void Pipe::Arm() {
  if (armed_ || frames_.empty()) return;
  armed_ = true;
  World& world = World::Get();
  world.After(std::max(frames_.front().at - world.now(), Duration::zero()),
              [self = shared_from_this()] {
                self->connection_->process(self->to_)->WhenRunning(
                    [self] { self->Arrive(); });
              });
}

void Pipe::Arrive() {
  armed_ = false;
  if (connection_->closed(to_)) {
    frames_.clear();
    return connection_->Refuse(1 - to_);
  }
  World& world = World::Get();
  const Duration free = Network::Get().FreeAt(
      connection_->process(1 - to_)->host(), connection_->process(to_)->host());
  if (free > world.now()) {
    frames_.front().at =
        free + world.random().Up(std::chrono::milliseconds(200));
    return Arm();
  }
  const auto deliver = std::move(frames_.front().deliver);
  frames_.pop_front();
  deliver();
  Arm();
}

// Connection -----------------------------------------------------------------

Connection::Connection(Process* client, Process* server, grpc::Service* service,
                       Duration peer_timeout, std::function<void()> on_close)
    : processes_{client, server},
      service_(service),
      peer_timeout_(peer_timeout),
      on_close_(std::move(on_close)) {}

std::shared_ptr<Pipe> Connection::NewPipe(int to) {
  std::erase_if(pipes_, [](const auto& pipe) { return pipe.expired(); });
  auto pipe = std::make_shared<Pipe>(shared_from_this(), to);
  pipes_.push_back(pipe);
  return pipe;
}

void Connection::Open() {
  for (const size_t end : {0, 1}) own_[end] = NewPipe(static_cast<int>(end));
  for (const size_t end : {0, 1}) {
    World::Get().After(peer_timeout_ / 4, [self = shared_from_this(), end] {
      self->processes_[end]->WhenRunning([self, end] { self->Ping(end); });
    });
  }
}

// As keepalive does: a quarter of the time until the ping, three for the
// answer.
void Connection::Ping(size_t end) {
  if (closed_[end] || own_[0] == nullptr) return;
  const uint64_t number = ++pings_[end];
  const auto self = shared_from_this();
  own_[1 - end]->Send([self, end, number] {
    if (self->own_[end] == nullptr) return;
    self->own_[end]->Send([self, end, number] {
      self->answers_[end] = number;
      World::Get().After(self->peer_timeout_ / 4, [self, end] {
        self->processes_[end]->WhenRunning([self, end] { self->Ping(end); });
      });
    });
  });
  World::Get().After(3 * peer_timeout_ / 4, [self, end, number] {
    self->processes_[end]->WhenRunning([self, end, number] {
      if (self->answers_[end] >= number) return;
      self->Close(static_cast<int>(end), Broken("keepalive watchdog timeout"),
                  true);
    });
  });
}

void Connection::Begin(const std::shared_ptr<Call>& call) {
  call->connection = shared_from_this();
  for (const size_t to : {0, 1}) {
    call->pipes[to] = NewPipe(static_cast<int>(to));
  }
  std::erase_if(calls_, [](const auto& one) { return one.expired(); });
  calls_.push_back(call);
  call->pipes[1]->Send(
      [self = shared_from_this(), call] { self->Accept(call); });
  if (call->early != nullptr) Send(call, 1, std::exchange(call->early, {}));
  if (!call->early_end) return;
  call->pipes[1]->Send([call] {
    if (const auto end = call->ends[1].lock()) end->OnHalfClose();
  });
}

void Connection::Accept(const std::shared_ptr<Call>& call) {
  const auto self = shared_from_this();
  CallEnd::Wire wire;
  wire.send = [self, call](std::shared_ptr<void> message) {
    self->Send(call, 0, std::move(message));
  };
  wire.finish = [call](const grpc::Status& status) {
    call->pipes[0]->Send([call, status] {
      if (const auto end = call->ends[0].lock()) end->OnTrailers(status);
    });
  };
  wire.consumed = [self, call] { self->Consumed(call, 1); };
  const auto end =
      std::make_shared<CallEnd>(processes_[1], std::move(wire), nullptr);
  call->ends[1] = end;
  call->context.metadata = call->metadata;
  call->context.client =
      "ipv4:" + Network::AddressOf(processes_[0]->host()) + "0000";
  end->Handle([service = service_, call] {
    return service->Handle(call->method, &call->context);
  });
}

void Connection::Send(const std::shared_ptr<Call>& call, int to,
                      std::shared_ptr<void> message) {
  const auto at = static_cast<size_t>(to);
  call->pipes[at]->Send([call, at, message] {
    if (const auto end = call->ends[at].lock()) end->OnMessage(message);
  });
  if (++call->under_way[at] >= Network::Get().window()) {
    call->stalled[at] = true;
    return;
  }
  World& world = World::Get();
  world.After(world.random().Up(kWritten), [writer = call->ends[1 - at]] {
    if (const auto end = writer.lock()) end->OnWritten();
  });
}

void Connection::Consumed(const std::shared_ptr<Call>& call, int by) {
  const auto at = static_cast<size_t>(by);
  --call->under_way[at];
  if (!std::exchange(call->stalled[at], false)) return;
  World::Get().After(Network::Get().Latency(), [writer = call->ends[1 - at]] {
    if (const auto end = writer.lock()) end->OnWritten();
  });
}

void Connection::Cancel(const std::shared_ptr<Call>& call) {
  call->pipes[1]->Send([call] {
    const auto end = call->ends[1].lock();
    if (end == nullptr) return;
    end->OnBroken(grpc::Status(grpc::StatusCode::CANCELLED, "CANCELLED"));
  });
}

void Connection::Close(int end, const grpc::Status& why, bool tells) {
  const auto at = static_cast<size_t>(end);
  if (closed_[at]) return;
  closed_[at] = true;
  for (const auto& one : calls_) {
    const auto call = one.lock();
    if (call == nullptr) continue;
    if (const auto of_call = call->ends[at].lock()) of_call->OnBroken(why);
  }
  if (end == 0) on_close_();
  if (tells && own_[1 - at] != nullptr) {
    own_[1 - at]->Send(
        [self = shared_from_this(), end] {
          self->Close(1 - end, Broken("Socket closed"), false);
        },
        World::Get().random().Chance(500));
  }
  if (closed_[1 - at]) own_ = {};
}

void Connection::Refuse(int end) {
  if (closed(end)) return;
  World::Get().After(
      Network::Get().Latency(), [self = shared_from_this(), end] {
        const Duration free = Network::Get().FreeAt(
            self->process(1 - end)->host(), self->process(end)->host());
        if (free > World::Get().now()) return;
        self->process(end)->WhenRunning([self, end] {
          self->Close(end, Broken("Connection reset by peer"), false);
        });
      });
}

// Channel --------------------------------------------------------------------

Channel::Channel(Process* owner, int host, Duration peer_timeout)
    : owner_(owner), host_(host), peer_timeout_(peer_timeout) {}

Channel::~Channel() {
  if (connection_ != nullptr) {
    const auto connection = std::move(connection_);
    connection->Close(0, Broken("the channel is gone"), true);
  }
}

std::shared_ptr<CallEnd> Channel::Prepare(const std::string& method,
                                          Metadata metadata, Reactor* reactor) {
  auto call = std::make_shared<Call>();
  call->method = method;
  call->metadata = std::move(metadata);
  CallEnd::Wire wire;
  wire.start = [self = shared_from_this(), call] { self->Start(call); };
  wire.send = [call](std::shared_ptr<void> message) {
    if (call->connection == nullptr) {
      call->early = std::move(message);
    } else {
      call->connection->Send(call, 1, std::move(message));
    }
  };
  wire.end_writes = [call] {
    call->early_end = true;
    if (call->connection == nullptr) return;
    call->pipes[1]->Send([call] {
      if (const auto end = call->ends[1].lock()) end->OnHalfClose();
    });
  };
  wire.cancel = [call] {
    if (call->connection != nullptr) call->connection->Cancel(call);
  };
  wire.consumed = [call] { call->connection->Consumed(call, 0); };
  auto end = std::make_shared<CallEnd>(owner_, std::move(wire), reactor);
  call->ends[0] = end;
  return end;
}

void Channel::Start(const std::shared_ptr<Call>& call) {
  if (connection_ != nullptr) return connection_->Begin(call);
  World& world = World::Get();
  if (!connecting_ && (owner_->dead() || world.now() < pause_until_)) {
    const grpc::Status why = owner_->dead() ? Broken("dead") : failed_;
    return world.After(Duration::zero(), [call, why] {
      if (const auto end = call->ends[0].lock()) end->OnBroken(why);
    });
  }
  waiting_.push_back(call);
  if (!connecting_) Connect();
}

void Channel::Connect() {
  connecting_ = true;
  const uint64_t attempt = ++attempt_;
  World& world = World::Get();
  const auto weak = weak_from_this();
  world.After(Network::Get().Latency(), [weak, attempt] {
    if (const auto self = weak.lock()) self->Knock(attempt);
  });
  const Duration limit =
      std::max<Duration>(std::chrono::seconds(1), peer_timeout_ / 2);
  world.After(limit, [weak, attempt] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->owner_->WhenRunning([self, attempt] {
      self->OnFailed(attempt, "Timeout occurred: FD Shutdown");
    });
  });
}

void Channel::Knock(uint64_t attempt) {
  if (!connecting_ || attempt != attempt_) return;
  World& world = World::Get();
  Network& network = Network::Get();
  const auto self = shared_from_this();
  const int own = owner_->host();
  if (std::max(network.FreeAt(own, host_), network.FreeAt(host_, own)) >
      world.now()) {
    return world.After(kKnockAgain, [self, attempt] { self->Knock(attempt); });
  }
  const Network::Listener listener = network.At(host_);
  if (listener.process == nullptr) {
    return world.After(network.Latency(), [self, attempt] {
      self->owner_->WhenRunning(
          [self, attempt] { self->OnFailed(attempt, "Connection refused"); });
    });
  }
  listener.process->WhenRunning([self, attempt, listener] {
    World::Get().After(Network::Get().Latency(), [self, attempt, listener] {
      self->owner_->WhenRunning([self, attempt, listener] {
        if (Network::Get().At(self->host_).process != listener.process) {
          return self->OnFailed(attempt, "Connection refused");
        }
        self->OnConnected(
            attempt, std::make_shared<Connection>(
                         self->owner_, listener.process, listener.service,
                         self->peer_timeout_, [weak = self->weak_from_this()] {
                           const auto channel = weak.lock();
                           if (channel != nullptr)
                             channel->connection_ = nullptr;
                         }));
      });
    });
  });
}

void Channel::OnConnected(uint64_t attempt,
                          std::shared_ptr<Connection> connection) {
  if (!connecting_ || attempt != attempt_ || owner_->dead()) return;
  connecting_ = false;
  backoff_ = Duration::zero();
  connection_ = std::move(connection);
  Network::Get().Add(connection_);
  connection_->Open();
  for (const auto& call : std::exchange(waiting_, {})) {
    const auto end = call->ends[0].lock();
    if (end != nullptr && !end->over()) connection_->Begin(call);
  }
}

void Channel::OnFailed(uint64_t attempt, const std::string& why) {
  if (!connecting_ || attempt != attempt_) return;
  connecting_ = false;
  backoff_ = std::clamp(2 * backoff_, kFirstBackoff, kLongestBackoff);
  pause_until_ = World::Get().now() + backoff_;
  failed_ = Broken(
      "failed to connect to all addresses; last error: "
      "Failed to connect to remote host: " +
      why);
  for (const auto& call : std::exchange(waiting_, {})) {
    if (const auto end = call->ends[0].lock()) end->OnBroken(failed_);
  }
}

}  // namespace sluice::simulation
