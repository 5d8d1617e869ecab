#include "common/pipeline/stage/stage_service.h"

#include <string>
#include <utility>

#include "common/pipeline/stage/blocks_stream.h"
#include "common/pipeline/stage/control_stream.h"
#include "common/pipeline/stage/reset_stream.h"
#include "common/pipeline/stage/results_stream.h"
#include "common/pipeline/stage/steps_stream.h"
#include "common/rpc/hello.h"
#include "sluice/v1/stage.grpc.pb.h"

namespace sluice {
namespace {

// Steps is raw: its frames are parsed without a protobuf object.
using ServiceBase = v1::Stage::WithRawCallbackMethod_Steps<
    v1::Stage::WithCallbackMethod_Control<v1::Stage::WithCallbackMethod_Results<
        v1::Stage::WithCallbackMethod_Blocks<
            v1::Stage::WithCallbackMethod_ResetTerm<v1::Stage::Service>>>>>;

// Answers that may wait for a slow reader; a stage's peers read all the time.
constexpr size_t kMaxQueued = 1024;
// Beside the answer that is being written.
constexpr size_t kMaxBlocksQueued = wire::kMaxBlocksAsked;

class StageService : public ServiceBase {
 public:
  StageService(std::shared_ptr<StageSession> session,
               rpc::RpcObserver* observer)
      : session_(std::move(session)), observer_(observer) {}

 private:
  grpc::ServerBidiReactor<v1::ControlRequest, v1::ControlResponse>* Control(
      grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<ControlStream>(Named("Control"), session_,
                                                  rpc::PeerOf(*context));
    stream->Open(rpc::HelloOf(*context));
    return stream.get();
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Steps(
      grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<StepsStream>(Named("Steps"), session_);
    stream->Open(rpc::HelloOf(*context));
    return stream.get();
  }

  grpc::ServerBidiReactor<v1::ResultsRequest, v1::StepResult>* Results(
      grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<ResultsStream>(Named("Results"), session_);
    stream->Open(rpc::HelloOf(*context));
    return stream.get();
  }

  grpc::ServerBidiReactor<v1::BlocksRequest, v1::BlocksResponse>* Blocks(
      grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<BlocksStream>(
        Named("Blocks", kMaxBlocksQueued), session_);
    stream->Open(rpc::HelloOf(*context));
    return stream.get();
  }

  grpc::ServerBidiReactor<v1::ResetTermRequest, v1::ResetTermResponse>*
  ResetTerm(grpc::CallbackServerContext* context) override {
    auto stream = std::make_shared<ResetStream>(Named("ResetTerm"), session_,
                                                rpc::PeerOf(*context));
    stream->Open(rpc::HelloOf(*context));
    return stream.get();
  }

  rpc::ServerStreamOptions Named(std::string method,
                                 size_t max_queued = kMaxQueued) const {
    return {std::move(method), observer_, max_queued};
  }

  const std::shared_ptr<StageSession> session_;
  rpc::RpcObserver* const observer_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeStageService(
    std::shared_ptr<StageSession> session, rpc::RpcObserver* observer) {
  return std::make_unique<StageService>(std::move(session), observer);
}

rpc::MethodRoles StageMethodRoles() {
  return {{"/sluice.v1.Stage/Control", {"gateway"}},
          {"/sluice.v1.Stage/Steps", {"gateway", "stage"}},
          {"/sluice.v1.Stage/Results", {"gateway", "stage"}},
          {"/sluice.v1.Stage/Blocks", {"stage"}},
          {"/sluice.v1.Stage/ResetTerm", {"gateway"}}};
}

}  // namespace sluice
