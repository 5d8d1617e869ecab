#ifndef SLUICE_COMMON_PIPELINE_STAGE_CONTROL_STREAM_H_
#define SLUICE_COMMON_PIPELINE_STAGE_CONTROL_STREAM_H_

#include <memory>

#include "common/pipeline/stage/stage_session.h"
#include "common/rpc/server_stream.h"

namespace sluice {

// Control's handler: translates messages to the session's calls.
class ControlStream
    : public rpc::ServerStream<v1::ControlRequest, v1::ControlResponse> {
 public:
  ControlStream(rpc::ServerStreamOptions options,
                std::shared_ptr<StageSession> session)
      : ServerStream(std::move(options)), session_(std::move(session)) {}

  void SendAssigned(Epoch epoch, const Status& status);
  void SendFailure(Epoch epoch, v1::FailureSide side, const Status& status);
  void SendDrained();
  // At most for `remaining` steps are taken.
  void SendDraining(Duration remaining);

 private:
  void OnMessage(v1::ControlRequest& request) override;
  void OnEnd(const Status& status) override;
  void OnHello(const v1::Hello& hello);
  void Answer(v1::ControlResponse response);

  const std::shared_ptr<StageSession> session_;
  bool welcomed_ = false;  // reads are one at a time
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_CONTROL_STREAM_H_
