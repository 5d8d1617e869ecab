#ifndef SLUICE_COMMON_PIPELINE_STAGE_RESULTS_STREAM_H_
#define SLUICE_COMMON_PIPELINE_STAGE_RESULTS_STREAM_H_

#include <memory>
#include <utility>

#include "common/pipeline/stage/stage_session.h"
#include "common/rpc/server_stream.h"

namespace sluice {

// Results' handler: the session writes to it.
class ResultsStream : public rpc::ServerWriter<v1::StepResult> {
 public:
  ResultsStream(rpc::ServerStreamOptions options,
                std::shared_ptr<StageSession> session)
      : ServerStreamBase(std::move(options)), session_(std::move(session)) {}

 private:
  void OnEnd(const Status& status) override { session_->OnResultsEnd(this); }

  const std::shared_ptr<StageSession> session_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_RESULTS_STREAM_H_
