#ifndef SLUICE_COMMON_EXPERTS_CLIENT_EXPERT_STREAM_H_
#define SLUICE_COMMON_EXPERTS_CLIENT_EXPERT_STREAM_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <utility>

#include "common/base/status.h"
#include "common/rpc/client_stream.h"
#include "common/wire/expert.h"

namespace sluice {

// Called from gRPC's threads; may not block. None is called after on_end.
struct ExpertStreamEvents {
  std::function<void(const wire::ExpertWelcome&)> on_welcome;  // once, first
  std::function<void(const v1::ExpertResult&, Buffer sums)> on_result;
  std::function<void(const v1::ExpertPong&)> on_pong;
  std::function<void(const Status&)> on_end;  // once
};

// The client's end of Expert.Batches (proto/sluice/v1/expert.proto): parses
// frames, in the protocol's order, without a look at their contents.
// INVALID_ARGUMENT ends the stream of a peer that breaks the order.
class ExpertStream
    : public rpc::ClientStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Opens the stream with `hello`.
  static std::shared_ptr<ExpertStream> Open(
      std::shared_ptr<grpc::Channel> channel, const wire::ExpertHello& hello,
      ExpertStreamEvents events);
  // Use Open.
  ExpertStream(std::shared_ptr<grpc::Channel> channel,
               ExpertStreamEvents events);

  static grpc::ByteBuffer FrameOf(wire::ExpertBatch batch);
  // Returns false if the stream has ended or its queue is full.
  bool SendFrame(grpc::ByteBuffer frame) { return Send(std::move(frame)); }
  bool SendPing(uint64_t sequence);

 private:
  void OnMessage(grpc::ByteBuffer& frame) override;
  void OnEnd(const Status& status) override;
  Status OnAnswer(const grpc::ByteBuffer& frame);

  const ExpertStreamEvents events_;
  bool welcomed_ = false;  // of OnMessage
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_CLIENT_EXPERT_STREAM_H_
