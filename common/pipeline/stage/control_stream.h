#ifndef SLUICE_COMMON_PIPELINE_STAGE_CONTROL_STREAM_H_
#define SLUICE_COMMON_PIPELINE_STAGE_CONTROL_STREAM_H_

#include <memory>
#include <string>
#include <utility>

#include "common/pipeline/stage/stage_session.h"
#include "common/rpc/server_stream.h"

namespace sluice {

// Control's handler: turns messages into calls of the session.
class ControlStream
    : public rpc::ServerStream<v1::ControlRequest, v1::ControlResponse> {
 public:
  // `peer`: the gateway's address; may be empty.
  ControlStream(rpc::ServerStreamOptions options,
                std::shared_ptr<StageSession> session, std::string peer = "")
      : ServerStream(std::move(options)),
        session_(std::move(session)),
        peer_(std::move(peer)) {}

  const std::string& peer() const { return peer_; }
  void SendAssigned(Epoch epoch, const Status& status, const KvOutcome& kv);
  void SendFailure(Epoch epoch, v1::FailureSide side, const Status& status);
  void SendDrained();
  // Announces that the stage takes steps for at most `remaining`.
  void SendDraining(Duration remaining);

 private:
  Status OnHello(const std::string& hello) override;
  void OnMessage(v1::ControlRequest& request) override;
  void OnEnd(const Status& status) override;
  void Answer(v1::ControlResponse response);

  const std::shared_ptr<StageSession> session_;
  const std::string peer_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_CONTROL_STREAM_H_
