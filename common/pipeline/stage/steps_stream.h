#ifndef SLUICE_COMMON_PIPELINE_STAGE_STEPS_STREAM_H_
#define SLUICE_COMMON_PIPELINE_STAGE_STEPS_STREAM_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "common/base/mutex.h"
#include "common/pipeline/stage/stage_session.h"
#include "common/rpc/server_stream.h"

namespace sluice {

// Steps' handler: parses frames, checks them against the epoch's limits and
// hands them to the epoch's links; answers with acks.
class StepsStream
    : public rpc::ServerStream<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  StepsStream(rpc::ServerStreamOptions options,
              std::shared_ptr<StageSession> session)
      : ServerStream(std::move(options)), session_(std::move(session)) {}

  // Queues the ack of the oldest unacknowledged step, which has been computed.
  // Pump sends it.
  void QueueAck(StepId step, const StepTiming& timing);

 private:
  Status OnHello(const std::string& hello) override;
  void OnMessage(grpc::ByteBuffer& frame) override;
  void OnEnd(const Status& status) override;
  // Of a frame.
  struct Arrival {
    int64_t received_ns = 0;
    int64_t bytes = 0;
  };
  Status OnFrame(const grpc::ByteBuffer& frame, int64_t received_ns);
  Status OnStep(v1::Step step, Buffer payload, const Arrival& arrival);

  const std::shared_ptr<StageSession> session_;
  std::optional<EpochLinks::InputTerms> terms_;  // by the hello
  Mutex mutex_;
  std::deque<int64_t> received_ns_ ABSL_GUARDED_BY(mutex_);  // not yet acked
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_STEPS_STREAM_H_
