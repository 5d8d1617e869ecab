#ifndef SLUICE_TESTS_SIMULATION_CONNECTION_H_
#define SLUICE_TESTS_SIMULATION_CONNECTION_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "tests/simulation/call_end.h"
#include "tests/simulation/network.h"

namespace sluice::simulation {

class Connection;

// One direction of one call, or of a connection's own frames. What is sent
// arrives in order, late, or never: with the connection all of it is lost.
// While the way is blocked it waits, as TCP repeats it.
class Pipe : public std::enable_shared_from_this<Pipe> {
 public:
  // To end `to` of the connection.
  Pipe(std::shared_ptr<Connection> connection, int to);
  // `last`: behind all that the connection's other pipes have under way.
  void Send(std::function<void()> deliver, bool last = false);

 private:
  friend class Connection;
  struct Frame {
    Duration at;
    std::function<void()> deliver;
  };
  void Arm();
  void Arrive();

  const std::shared_ptr<Connection> connection_;
  const int to_;
  std::deque<Frame> frames_;
  Duration last_at_{};
  bool armed_ = false;
};

using Metadata = std::multimap<std::string, std::string>;

// A call on its connection.
struct Call {
  std::string method;
  Metadata metadata;
  std::shared_ptr<Connection> connection;      // null: waits for one
  std::array<std::weak_ptr<CallEnd>, 2> ends;  // client, server
  std::array<std::shared_ptr<Pipe>, 2> pipes;  // to the client, the server
  std::array<size_t, 2> under_way{};  // messages sent to an end and not read
  std::array<bool, 2> stalled{};      // a write to the end waits for room
  grpc::CallbackServerContext context;
  // What a client sends before there is a connection.
  std::shared_ptr<void> early;
  bool early_end = false;
};

// A TCP connection with HTTP/2 on it: calls, keepalive, and its end, which each
// side notices for itself. End 0 is the client's.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Process* client, Process* server, grpc::Service* service,
             Duration peer_timeout, std::function<void()> on_close);
  void Open();  // both ends

  void Begin(const std::shared_ptr<Call>& call);
  void Send(const std::shared_ptr<Call>& call, int to,
            std::shared_ptr<void> message);
  void Consumed(const std::shared_ptr<Call>& call, int by);
  // The client cancels.
  void Cancel(const std::shared_ptr<Call>& call);

  // End `end` gives the connection up, or learns that it is broken. `tells`:
  // the other end learns it, as soon as the way is free.
  void Close(int end, const grpc::Status& why, bool tells);
  bool closed(int end) const { return closed_[static_cast<size_t>(end)]; }
  Process* process(int end) const {
    return processes_[static_cast<size_t>(end)];
  }
  // A frame comes to an end that is closed.
  void Refuse(int end);

 private:
  friend class Pipe;
  void Ping(size_t end);
  void Accept(const std::shared_ptr<Call>& call);
  std::shared_ptr<Pipe> NewPipe(int to);

  const std::array<Process*, 2> processes_;
  grpc::Service* const service_;
  const Duration peer_timeout_;
  const std::function<void()> on_close_;  // the client's end
  std::array<bool, 2> closed_{};
  std::array<std::shared_ptr<Pipe>, 2> own_;
  std::vector<std::weak_ptr<Pipe>> pipes_;
  std::vector<std::weak_ptr<Call>> calls_;
  std::array<uint64_t, 2> pings_{};
  std::array<uint64_t, 2> answers_{};
};

// A client's way to an address: connects when it is used, again after a pause.
// Calls wait for an attempt that is under way and fail in a pause.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  Channel(Process* owner, int host, Duration peer_timeout);
  ~Channel();

  // A call that begins with the end's Start.
  std::shared_ptr<CallEnd> Prepare(const std::string& method, Metadata metadata,
                                   Reactor* reactor);

 private:
  void Start(const std::shared_ptr<Call>& call);
  void Connect();
  void Knock(uint64_t attempt);
  void OnConnected(uint64_t attempt, std::shared_ptr<Connection> connection);
  void OnFailed(uint64_t attempt, const std::string& why);

  Process* const owner_;
  const int host_;
  const Duration peer_timeout_;
  std::shared_ptr<Connection> connection_;
  std::vector<std::shared_ptr<Call>> waiting_;
  bool connecting_ = false;
  uint64_t attempt_ = 0;
  Duration backoff_{};
  Duration pause_until_{};
  grpc::Status failed_;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_CONNECTION_H_
