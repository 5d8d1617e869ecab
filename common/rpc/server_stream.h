#ifndef SLUICE_COMMON_RPC_SERVER_STREAM_H_
#define SLUICE_COMMON_RPC_SERVER_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/rpc/rpc_observer.h"
#include "common/rpc/send_queue.h"
#include "common/rpc/status.h"

namespace sluice::rpc {

// A server stream's name, the observer of its end, and how many messages may
// wait to be written.
struct ServerStreamOptions {
  std::string method;
  RpcObserver* observer = nullptr;  // may be null
  size_t max_queued = 64;
};

// The server's end of a stream. The lifetime rule: a stream holds a reference
// to itself from Open until gRPC's OnDone; Pump alone decides what is written
// next; the first end wins. `Reactor` is gRPC's class for the shape of the RPC.
// Make it with std::make_shared, call Open, return get() to gRPC. Any thread
// with a reference may call Send, Enqueue, Pump and End.
template <typename Reactor, typename Out>
class ServerStreamBase
    : public Reactor,
      public std::enable_shared_from_this<ServerStreamBase<Reactor, Out>> {
 public:
  explicit ServerStreamBase(ServerStreamOptions options)
      : options_(std::move(options)), queue_(options_.max_queued) {}

  void Open() { self_ = this->shared_from_this(); }

  // Queues a message. False if the queue is full or the stream has ended.
  bool Send(Out message) {
    if (!Enqueue(std::move(message))) return false;
    Pump();
    return true;
  }
  // Send in two steps, for callers that order messages under their own lock:
  // Enqueue with the lock, Pump without it, because a write is a system call.
  bool Enqueue(Out message) { return queue_.Push(std::move(message)); }
  void Pump() {
    switch (queue_.Decide()) {
      case SendQueue<Out>::Next::kNothing:
        return;
      case SendQueue<Out>::Next::kWrite:
        this->StartWrite(queue_.current());
        return;
      case SendQueue<Out>::Next::kEnd:
        this->Finish(ToGrpc(end()));
        return;
    }
  }
  // Ends the stream with `status`, behind the messages sent before.
  void End(const Status& status) {
    SetEnd(status);
    queue_.Close();
    Pump();
  }

  // Ends the stream at once: drops the messages that are not being written yet.
  void Abort(const Status& status) {
    SetEnd(status);
    queue_.Abort();
    Pump();
  }

 protected:
  // The stream is over; called once, last, from gRPC's thread.
  virtual void OnEnd(const Status& status) {}
  // gRPC's thread: the oldest message has been written.
  virtual void OnSent() {}

  bool has_ended() const {
    MutexLock lock(mutex_);
    return end_.has_value();
  }

 private:
  void OnWriteDone(bool ok) final {
    queue_.Written(ok);
    if (ok) OnSent();
    Pump();
  }
  void OnCancel() final {
    SetEnd(Cancelled(options_.method, ": the peer is gone"));
    queue_.Abort();
    Pump();
  }
  void OnDone() final {
    const auto self = std::move(self_);
    const Status status = end();
    if (options_.observer != nullptr) {
      options_.observer->OnHandled(options_.method, status.code(),
                                   Clock::now() - opened_);
    }
    OnEnd(status);
  }

  void SetEnd(const Status& status) {
    MutexLock lock(mutex_);
    if (!end_.has_value()) end_ = status;
  }
  // A write can fail before gRPC gives the reason.
  Status end() {
    MutexLock lock(mutex_);
    if (!end_.has_value()) {
      end_ = Unavailable(options_.method, ": the connection broke");
    }
    return *end_;
  }

  const ServerStreamOptions options_;
  const TimePoint opened_ = Clock::now();
  SendQueue<Out> queue_;
  mutable Mutex mutex_;
  std::optional<Status> end_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ServerStreamBase> self_;
};

// A stream that only writes: it reads no message of the peer. On the wire it is
// a stream in both directions, because gRPC would read the one request of
// another kind before it calls the handler.
template <typename In, typename Out>
using ServerWriter = ServerStreamBase<grpc::ServerBidiReactor<In, Out>, Out>;

// A stream in both directions. Its hello comes before all messages; then it
// reads one message at a time, the next one after OnMessage has returned.
template <typename In, typename Out>
class ServerStream
    : public ServerStreamBase<grpc::ServerBidiReactor<In, Out>, Out> {
 public:
  using Base = ServerStreamBase<grpc::ServerBidiReactor<In, Out>, Out>;
  using Base::Base;

  // `hello`: from the call's metadata (common/rpc/hello.h). No byte of a
  // refused peer is read.
  void Open(const std::string& hello) {
    Base::Open();
    const Status status = OnHello(hello);
    if (!status.ok()) {
      this->End(status);
    } else if (!this->has_ended()) {
      this->StartRead(&in_);
    }
  }

 protected:
  // gRPC's thread, once, first: checks and answers the hello, or refuses it.
  virtual Status OnHello(const std::string& hello) = 0;
  // gRPC's thread: translate, enqueue, return. `message` may be moved from.
  virtual void OnMessage(In& message) = 0;
  // The peer sends nothing more.
  virtual void OnHalfClose() { this->End(OkStatus()); }

 private:
  void OnReadDone(bool ok) final {
    if (!ok) {
      OnHalfClose();
      return;
    }
    OnMessage(in_);
    if (!this->has_ended()) this->StartRead(&in_);
  }

  In in_;
};

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_SERVER_STREAM_H_
