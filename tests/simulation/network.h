#ifndef SLUICE_TESTS_SIMULATION_NETWORK_H_
#define SLUICE_TESTS_SIMULATION_NETWORK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace sluice::simulation {

class Connection;
class Process;

// Hosts and the ways between them. Host n has the address "host:n".
class Network {
 public:
  struct Weather {
    Duration latency = std::chrono::microseconds(300);  // at most
    int late = 0;        // of a thousand frames, those that are far later
    size_t window = 64;  // unread messages of a stream
  };
  explicit Network(Weather weather);
  ~Network();
  static Network& Get();

  static std::string AddressOf(int host) {
    return "host:" + std::to_string(host);
  }
  static int HostOf(const std::string& address);

  // The process of `host` takes calls.
  void Listen(Process* process, grpc::Service* service);
  struct Listener {
    Process* process = nullptr;
    grpc::Service* service = nullptr;
  };
  Listener At(int host) const;

  // Frames from host `from` to host `to` wait for so long.
  void Block(int from, int to, Duration time);
  // When the way is free; now or earlier: it is.
  Duration FreeAt(int from, int to) const;
  // All connections between the two hosts break.
  void BreakBetween(int a, int b);
  // The process is gone: its connections end. `silently`: the machine is gone
  // as well, and the peers get no event.
  void Cut(Process* process, bool silently);
  void FreeAll();

  // Runs `work` in a fibre of `to`, unless the way is blocked.
  void Post(Process* from, Process* to, std::function<void()> work);

  Duration Latency();
  size_t window() const { return weather_.window; }
  void Add(const std::shared_ptr<Connection>& connection);

 private:
  const Weather weather_;
  std::map<int, Listener> listeners_;
  std::map<std::pair<int, int>, Duration> blocked_;
  std::vector<std::weak_ptr<Connection>> connections_;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_NETWORK_H_
