#ifndef SLUICE_COMMON_PIPELINE_STAGE_RESULTS_STREAM_H_
#define SLUICE_COMMON_PIPELINE_STAGE_RESULTS_STREAM_H_

#include <memory>
#include <string>
#include <utility>

#include "common/pipeline/stage/stage_session.h"
#include "common/rpc/hello.h"
#include "common/rpc/server_stream.h"

namespace sluice {

// Results' handler: the epoch's links write to it.
class ResultsStream
    : public rpc::ServerWriter<v1::ResultsRequest, v1::StepResult> {
 public:
  ResultsStream(rpc::ServerStreamOptions options,
                std::shared_ptr<StageSession> session)
      : ServerStreamBase(std::move(options)), session_(std::move(session)) {}

  // `hello`: a ResultsRequest from the call's metadata.
  void Open(const std::string& hello) {
    ServerStreamBase::Open();
    const Status status = Begin(hello);
    if (!status.ok()) End(status);
  }

 private:
  Status Begin(const std::string& hello) {
    SLUICE_ASSIGN_OR_RETURN(
        const v1::ResultsRequest request,
        rpc::ParseHello<v1::ResultsRequest>(hello, "Results"));
    return session_->links().OnResults(
        request, std::static_pointer_cast<ResultsStream>(shared_from_this()));
  }
  void OnEnd(const Status& status) override {
    session_->links().OnResultsEnd(this);
  }

  const std::shared_ptr<StageSession> session_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_RESULTS_STREAM_H_
