#include "common/pipeline/gateway/stage_links.h"

#include "common/base/clock.h"
#include "common/rpc/payload_frame.h"
#include "common/wire/types.h"

namespace sluice {

std::shared_ptr<ControlLink> OpenControl(std::shared_ptr<grpc::Channel> channel,
                                         const v1::Hello& hello,
                                         ControlLink::Events events) {
  auto link = std::make_shared<ControlLink>(std::move(channel), kControlMethod,
                                            std::move(events));
  link->Open(hello.SerializeAsString());
  return link;
}

std::shared_ptr<ResultsLink> OpenResults(std::shared_ptr<grpc::Channel> channel,
                                         const wire::PipelineName& pipeline,
                                         ResultsLink::Events events) {
  auto link = std::make_shared<ResultsLink>(std::move(channel), kResultsMethod,
                                            std::move(events));
  v1::ResultsRequest request;
  request.set_replica(pipeline.replica.value());
  wire::SetEpoch(pipeline.epoch, &request);
  request.set_secret(pipeline.secret);
  link->Open(request.SerializeAsString());
  return link;
}

grpc::ByteBuffer PlanFrame(const StepPlan& plan) {
  v1::StepFrame frame = wire::StepFrameHead(plan, MonotonicNanos());
  if (plan.trace.has_value()) frame.mutable_step()->mutable_trace();
  return rpc::JoinPayload(frame, 0, Buffer());
}

}  // namespace sluice
