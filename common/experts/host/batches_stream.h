#ifndef SLUICE_COMMON_EXPERTS_HOST_BATCHES_STREAM_H_
#define SLUICE_COMMON_EXPERTS_HOST_BATCHES_STREAM_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "common/experts/host/expert_loop.h"
#include "common/experts/host/expert_session.h"
#include "common/rpc/server_stream.h"

namespace sluice {

// The handler of Batches: parses frames, checks them against the host's experts
// and hands them to the loop; answers each batch with one result.
class BatchesStream
    : public rpc::ServerStream<grpc::ByteBuffer, grpc::ByteBuffer>,
      public ExpertResultSink {
 public:
  BatchesStream(rpc::ServerStreamOptions options,
                std::shared_ptr<ExpertSession> session)
      : ServerStream(std::move(options)), session_(std::move(session)) {}

  void OnResult(wire::ExpertResult result, int64_t received_ns) override;
  void SendPong(const v1::ExpertPong& pong);

 private:
  Status OnHello(const std::string& hello) override;
  void OnMessage(grpc::ByteBuffer& frame) override;
  void OnHalfClose() override;
  void OnEnd(const Status& status) override;
  void OnSent() override;
  Status OnFrame(const grpc::ByteBuffer& frame, int64_t received_ns);
  void OnBatch(const v1::ExpertBatch& proto, Buffer payload,
               int64_t received_ns);
  // An error unless the batch may be computed; counts it as open if so.
  Status Admit(const v1::ExpertBatch& proto);
  void Refuse(const v1::ExpertBatch& proto, const Status& why);
  // Queues an answer; `counted`: to an admitted batch. Returns false if the
  // stream has ended. Without room for the answer it ends the stream: a client
  // would wait for a dropped answer.
  bool Post(grpc::ByteBuffer answer, bool counted);
  // Ends the stream if the client has ended it and no batch is open.
  void EndIfDone();
  std::shared_ptr<BatchesStream> self() {
    return std::static_pointer_cast<BatchesStream>(shared_from_this());
  }

  const std::shared_ptr<ExpertSession> session_;
  // Reads are one at a time; these two are the reader's.
  std::shared_ptr<const ExpertSession::Terms> terms_;  // by the hello
  Epoch highest_epoch_;
  Mutex mutex_;
  // Batches admitted whose answers have not left yet.
  int32_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  // For each answer that has not left, the oldest first: whether it is counted.
  std::deque<bool> queued_ ABSL_GUARDED_BY(mutex_);
  bool half_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_HOST_BATCHES_STREAM_H_
