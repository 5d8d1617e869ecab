#ifndef SLUICE_COMMON_PIPELINE_STAGE_RESET_STREAM_H_
#define SLUICE_COMMON_PIPELINE_STAGE_RESET_STREAM_H_

#include <memory>
#include <string>
#include <utility>

#include "common/pipeline/stage/stage_checks.h"
#include "common/pipeline/stage/stage_session.h"
#include "common/rpc/hello.h"
#include "common/rpc/server_stream.h"

namespace sluice {

// ResetTerm's handler.
class ResetStream
    : public rpc::ServerWriter<v1::ResetTermRequest, v1::ResetTermResponse> {
 public:
  ResetStream(rpc::ServerStreamOptions options,
              std::shared_ptr<StageSession> session, std::string peer)
      : ServerStreamBase(std::move(options)),
        session_(std::move(session)),
        peer_(std::move(peer)) {}

  // `hello`: a ResetTermRequest from the call's metadata.
  void Open(const std::string& hello) {
    ServerStreamBase::Open();
    End(Reset(hello));
  }

 private:
  Status Reset(const std::string& hello) {
    SLUICE_ASSIGN_OR_RETURN(
        const v1::ResetTermRequest request,
        rpc::ParseHello<v1::ResetTermRequest>(hello, "ResetTerm"));
    SLUICE_RETURN_IF_ERROR(CheckVersion(request.protocol_version()));
    SLUICE_ASSIGN_OR_RETURN(const uint64_t term, session_->ResetTerm(peer_));
    v1::ResetTermResponse response;
    response.set_term(term);
    Send(std::move(response));
    return OkStatus();
  }

  const std::shared_ptr<StageSession> session_;
  const std::string peer_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_RESET_STREAM_H_
