#ifndef SLUICE_TESTS_SIMULATION_CALL_END_H_
#define SLUICE_TESTS_SIMULATION_CALL_END_H_

#include <grpcpp/support/status.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

namespace sluice::simulation {

class Process;

// The application's object at one end of a call; gRPC's classes of that name
// derive from it, in host/grpcpp.
class Reactor {
 public:
  virtual ~Reactor() = default;
  // Fills the message of the pending read.
  virtual void Take(void* message) = 0;
  virtual void TellRead(bool ok) = 0;
  virtual void TellWrite(bool ok) = 0;
  virtual void TellCancel() = 0;                   // a server's
  virtual void TellDone(const grpc::Status&) = 0;  // last
};

// One end of a call, with the rules of gRPC's callback API: reactions of one
// call run beside each other, each when its operation ends; a read ends once a
// message is there, or none comes any more; a write once the network took it;
// OnDone comes when no operation, reaction or hold is left. The end of a client
// is bound from the start, that of a server when the handler has returned.
class CallEnd : public std::enable_shared_from_this<CallEnd> {
 public:
  // What the ends' owner does for them.
  struct Wire {
    std::function<void()> start;  // a client's
    std::function<void(std::shared_ptr<void>)> send;
    std::function<void()> end_writes;                 // a client's
    std::function<void(const grpc::Status&)> finish;  // a server's
    std::function<void()> cancel;                     // a client's
    std::function<void()> consumed;                   // a message was read
  };
  CallEnd(Process* process, Wire wire, Reactor* reactor);
  // Of the call whose handler runs; else none is made.
  static std::shared_ptr<CallEnd> Handled();

  // The application.
  void Start();
  void Read();
  void Write(std::shared_ptr<void> message);
  void EndWrites();
  void Finish(const grpc::Status& status);
  void Cancel();
  void AddHold() { ++holds_; }
  void RemoveHold();

  // The network. A server's handler: makes the reactor.
  void Handle(const std::function<Reactor*()>& handler);
  void OnMessage(std::shared_ptr<void> message);
  void OnWritten();    // there is room for the next one
  void OnHalfClose();  // at a server
  void OnTrailers(const grpc::Status& status);  // at a client
  // The call is broken: the connection has ended, or the client cancelled.
  void OnBroken(const grpc::Status& status);

  Process* process() const { return process_; }
  bool is_client() const { return is_client_; }
  bool over() const { return end_.has_value(); }

 private:
  void End(const grpc::Status& status);
  void Advance();
  // Runs `tell` in a fibre of the process.
  void React(std::function<void()> tell);

  Process* const process_;
  const Wire wire_;
  const bool is_client_;
  Reactor* reactor_;
  bool bound_ = false;
  std::deque<std::shared_ptr<void>> inbox_;
  bool no_more_ = false;         // messages come
  bool reads_ = false;           // a read is pending
  bool writes_ = false;          // likewise
  std::optional<bool> written_;  // how the pending write ended
  std::optional<grpc::Status> end_;
  bool broken_ = false;
  bool tell_cancel_ = false;
  bool finished_ = false;  // a server's Finish was called
  int holds_ = 0;
  int reactions_ = 0;  // under way
  bool done_ = false;
};

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_CALL_END_H_
