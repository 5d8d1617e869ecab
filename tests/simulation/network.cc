#include "tests/simulation/network.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/rpc/transport.h"
#include "tests/simulation/connection.h"
#include "tests/simulation/world.h"

namespace sluice::simulation {
namespace {

thread_local Network* g_network = nullptr;
constexpr Duration kLate = std::chrono::milliseconds(60);

}  // namespace

Network::Network(Weather weather) : weather_(weather) { g_network = this; }

Network::~Network() {
  for (const auto& one : connections_) {
    const auto connection = one.lock();
    if (connection == nullptr) continue;
    for (const int end : {0, 1}) connection->Close(end, {}, false);
  }
  g_network = nullptr;
}

Network& Network::Get() {
  SLUICE_CHECK(g_network != nullptr);
  return *g_network;
}

int Network::HostOf(const std::string& address) {
  return std::stoi(address.substr(address.find(':') + 1));
}

void Network::Listen(Process* process, grpc::Service* service) {
  if (process->dead()) return;
  listeners_[process->host()] = {process, service};
}

Network::Listener Network::At(int host) const {
  const auto found = listeners_.find(host);
  return found == listeners_.end() ? Listener() : found->second;
}

void Network::Block(int from, int to, Duration time) {
  Duration& until = blocked_[{from, to}];
  until = std::max(until, World::Get().now() + time);
}

Duration Network::FreeAt(int from, int to) const {
  const auto found = blocked_.find({from, to});
  return found == blocked_.end() ? Duration::zero() : found->second;
}

void Network::FreeAll() { blocked_.clear(); }

void Network::BreakBetween(int a, int b) {
  World& world = World::Get();
  for (const auto& one : connections_) {
    const auto connection = one.lock();
    if (connection == nullptr) continue;
    const int hosts[] = {connection->process(0)->host(),
                         connection->process(1)->host()};
    if (!(hosts[0] == a && hosts[1] == b) &&
        !(hosts[0] == b && hosts[1] == a)) {
      continue;
    }
    // Each end learns it at its own time, or when it sends again.
    for (const int end : {0, 1}) {
      if (world.random().Chance(200)) continue;
      world.After(world.random().Up(kLate), [connection, end] {
        connection->process(end)->WhenRunning([connection, end] {
          connection->Close(
              end, {grpc::StatusCode::UNAVAILABLE, "Socket closed"}, false);
        });
      });
    }
  }
}

void Network::Cut(Process* process, bool silently) {
  if (At(process->host()).process == process) listeners_.erase(process->host());
  for (const auto& one : std::vector(connections_)) {
    const auto connection = one.lock();
    if (connection == nullptr) continue;
    for (const int end : {0, 1}) {
      if (connection->process(end) != process) continue;
      connection->Close(end,
                        {grpc::StatusCode::UNAVAILABLE, "the process is gone"},
                        !silently);
    }
  }
}

void Network::Post(Process* from, Process* to, std::function<void()> work) {
  World& world = World::Get();
  if (from->dead() || FreeAt(from->host(), to->host()) > world.now()) return;
  world.After(Latency(), [to, work = std::move(work)] {
    if (!to->dead()) World::Get().Spawn(to, work);
  });
}

Duration Network::Latency() {
  Random& random = World::Get().random();
  const bool late = weather_.late > 0 && random.Chance(weather_.late);
  return random.Up(late ? kLate : weather_.latency);
}

void Network::Add(const std::shared_ptr<Connection>& connection) {
  std::erase_if(connections_, [](const auto& one) { return one.expired(); });
  connections_.push_back(connection);
}

}  // namespace sluice::simulation

namespace sluice::rpc {

StatusOr<std::shared_ptr<grpc::Channel>> Connect(
    const std::string& address, const TransportOptions& options,
    std::string_view) {
  return std::make_shared<grpc::Channel>(simulation::World::Get().process(),
                                         simulation::Network::HostOf(address),
                                         options.peer_timeout);
}

}  // namespace sluice::rpc
