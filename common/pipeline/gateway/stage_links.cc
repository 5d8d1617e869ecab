#include "common/pipeline/gateway/stage_links.h"

#include "common/base/clock.h"
#include "common/rpc/payload_frame.h"

namespace sluice {

std::shared_ptr<ControlLink> OpenControl(std::shared_ptr<grpc::Channel> channel,
                                         const std::string& gateway_id,
                                         const std::string& build,
                                         ControlLink::Events events) {
  auto link = std::make_shared<ControlLink>(std::move(channel), kControlMethod,
                                            std::move(events));
  link->Open();
  v1::ControlRequest request;
  request.mutable_hello()->set_protocol_version(wire::kProtocolVersion);
  request.mutable_hello()->set_gateway_id(gateway_id);
  request.mutable_hello()->set_build(build);
  link->Send(std::move(request));
  return link;
}

std::shared_ptr<ResultsLink> OpenResults(std::shared_ptr<grpc::Channel> channel,
                                         ReplicaId replica, Epoch epoch,
                                         ResultsLink::Events events) {
  auto link = std::make_shared<ResultsLink>(std::move(channel), kResultsMethod,
                                            std::move(events));
  link->Open();
  v1::ResultsRequest request;
  request.set_replica(replica.value());
  request.set_epoch(epoch.value());
  link->Send(std::move(request));
  link->HalfClose();
  return link;
}

grpc::ByteBuffer FirstStepsHello(ReplicaId replica, Epoch epoch,
                                 const wire::StageIdentity& first) {
  v1::StepFrame frame;
  v1::StepsHello* hello = frame.mutable_hello();
  hello->set_protocol_version(wire::kProtocolVersion);
  hello->set_replica(replica.value());
  hello->set_epoch(epoch.value());
  hello->set_model_digest(first.model_digest);
  hello->set_numerics(first.numerics);
  hello->set_layer(first.first_layer);
  hello->set_hidden_size(first.hidden_size);
  return rpc::JoinPayload(frame, 0, Buffer());
}

grpc::ByteBuffer PlanFrame(const StepPlan& plan) {
  v1::StepFrame frame = wire::StepFrameHead(plan, MonotonicNanos());
  if (plan.trace.has_value()) frame.mutable_step()->mutable_trace();
  return rpc::JoinPayload(frame, 0, Buffer());
}

}  // namespace sluice
