#ifndef SLUICE_COMMON_RPC_CREDITED_SENDER_H_
#define SLUICE_COMMON_RPC_CREDITED_SENDER_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/rpc/client_stream.h"

namespace sluice::rpc {

struct CreditedSenderOptions {
  std::shared_ptr<grpc::Channel> channel;
  std::string method;
  std::string hello;       // its answer opens the stream
  size_t credits = 1;      // frames that may be unanswered
  size_t max_waiting = 1;  // frames that may wait for a credit
};

// Called from gRPC's threads; may not block. None is called after on_end.
struct CreditedSenderEvents {
  std::function<void()> on_ready;  // the hello was answered
  std::function<void(const grpc::ByteBuffer&)> on_ack;  // of a frame
  std::function<void(const Status&)> on_end;            // once
  // A frame got its credit after `waited_ns`. Also from the thread that sends;
  // may be empty, and may come while on_end does.
  std::function<void(int64_t waited_ns)> on_credit = nullptr;
};

// The sending end of a stream on which every frame gets one ack: acks are
// credits. Frames leave in the order of Send; frames beyond the credits wait.
// INVALID_ARGUMENT ends the stream of a peer that acks an unsent frame. Any
// thread.
class CreditedSender : public ClientStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  static std::shared_ptr<CreditedSender> Open(CreditedSenderOptions options,
                                              CreditedSenderEvents events);
  // Use Open.
  CreditedSender(CreditedSenderOptions options, CreditedSenderEvents events);

  // RESOURCE_EXHAUSTED if max_waiting frames wait; UNAVAILABLE after the end.
  Status SendFrame(grpc::ByteBuffer frame);
  // SendFrame in two steps, for callers that order frames under their own lock:
  // EnqueueFrame with the lock, Pump without it.
  Status EnqueueFrame(grpc::ByteBuffer frame);
  using ClientStream::Pump;
  // Frames that wait for a credit.
  size_t waiting() const;

 private:
  void OnMessage(grpc::ByteBuffer& message) override;
  void OnEnd(const Status& status) override;
  struct Waiting {
    grpc::ByteBuffer frame;
    int64_t since_ns = 0;
  };
  // Passes on the frames with credit. Returns how long each has waited.
  std::vector<int64_t> Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(const std::vector<int64_t>& waits) const;

  const size_t max_waiting_;
  const CreditedSenderEvents events_;
  mutable Mutex mutex_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t credits_ ABSL_GUARDED_BY(mutex_);
  size_t unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_CREDITED_SENDER_H_
