#ifndef SLUICE_COMMON_RPC_CLIENT_STREAM_H_
#define SLUICE_COMMON_RPC_CLIENT_STREAM_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/client_callback.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/rpc/hello.h"
#include "common/rpc/send_queue.h"
#include "common/rpc/status.h"

namespace sluice::rpc {

// The client's end of a stream; also of one that only reads: it sends its one
// request and half-closes. The lifetime rule is ServerStreamBase's: a reference
// to itself from Open until OnDone, Pump alone decides what is written next,
// the first end wins. Make it with std::make_shared, call Open once. Any thread
// with a reference may call Send, HalfClose and Cancel after Open.
template <typename Out, typename In>
class ClientStream
    : public grpc::ClientBidiReactor<Out, In>,
      public std::enable_shared_from_this<ClientStream<Out, In>> {
 public:
  // `method` is "/package.Service/Method".
  ClientStream(std::shared_ptr<grpc::Channel> channel, std::string method,
               size_t max_queued)
      : method_(std::move(method)),
        stub_(std::move(channel)),
        queue_(max_queued) {}

  // `hello`: a serialised message, which travels before all others. More than
  // kMaxHelloBytes end the stream with INVALID_ARGUMENT.
  void Open(const std::string& hello = "") {
    self_ = this->shared_from_this();
    const bool fits = hello.size() <= kMaxHelloBytes;
    if (fits) {
      SetHello(hello, &context_);
    } else {
      // Before the call begins: the peer's end would differ.
      SetEnd(InvalidArgument("the hello has ", hello.size(), " bytes, limit ",
                             kMaxHelloBytes));
    }
    stub_.PrepareBidiStreamingCall(&context_, method_, {}, this);
    // Writes start outside of reactions; gRPC must not finish before Pump has
    // seen the end.
    this->AddHold();
    this->StartRead(&in_);
    this->StartCall();
    if (!fits) Cancel(Cancelled("the hello is too large"));
  }

  // Queues a message. False if the queue is full or the stream has ended.
  bool Send(Out message) {
    if (!Enqueue(std::move(message))) return false;
    Pump();
    return true;
  }
  // Sends nothing more; the peer ends the stream.
  void HalfClose() {
    queue_.Close();
    Pump();
  }
  // Breaks the stream off; OnEnd gets `why` unless the stream has ended before.
  void Cancel(const Status& why) {
    SetEnd(why);
    queue_.Abort();
    context_.TryCancel();
    Pump();
  }

 protected:
  // gRPC's thread: translate, enqueue, return. `message` may be moved from.
  virtual void OnMessage(In& message) = 0;
  // The stream is over; called once, last, from gRPC's thread.
  virtual void OnEnd(const Status& status) = 0;

  // Send in two steps, for callers that order messages under their own lock.
  bool Enqueue(Out message) { return queue_.Push(std::move(message)); }
  void Pump() {
    switch (queue_.Decide()) {
      case SendQueue<Out>::Next::kNothing:
        return;
      case SendQueue<Out>::Next::kWrite:
        this->StartWrite(queue_.current());
        return;
      case SendQueue<Out>::Next::kEnd:
        this->StartWritesDone();
        this->RemoveHold();
        return;
    }
  }

 private:
  void OnReadDone(bool ok) final {
    if (ok) {
      OnMessage(in_);
      this->StartRead(&in_);
      return;
    }
    queue_.Abort();
    Pump();
  }
  void OnWriteDone(bool ok) final {
    queue_.Written(ok);
    Pump();
  }
  void OnDone(const grpc::Status& status) final {
    const auto self = std::move(self_);
    SetEnd(FromGrpc(status));
    Status end;
    {
      MutexLock lock(mutex_);
      end = *end_;
    }
    OnEnd(end);
  }
  void SetEnd(const Status& status) {
    MutexLock lock(mutex_);
    if (!end_.has_value()) end_ = status;
  }

  const std::string method_;
  grpc::TemplatedGenericStub<Out, In> stub_;
  grpc::ClientContext context_;
  SendQueue<Out> queue_;
  In in_;
  Mutex mutex_;
  std::optional<Status> end_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ClientStream> self_;
};

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_CLIENT_STREAM_H_
