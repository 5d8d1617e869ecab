#include "common/pipeline/stage/sampled_link.h"

#include <utility>

#include "common/rpc/transport.h"
#include "common/wire/types.h"

namespace sluice {

StatusOr<std::shared_ptr<SampledLink>> SampledLink::Open(
    const std::string& address, const wire::PipelineName& pipeline,
    const PlanLimits& limits, rpc::TransportOptions transport, Events events) {
  transport.max_message_bytes = wire::MaxResultBytes(limits);
  SLUICE_ASSIGN_OR_RETURN(auto channel,
                          rpc::Connect(address, transport, rpc::kStageRole));
  auto link = std::make_shared<SampledLink>(std::move(channel), limits,
                                            std::move(events));
  v1::ResultsRequest request;
  request.set_replica(pipeline.replica.value());
  wire::SetEpoch(pipeline.epoch, &request);
  request.set_secret(pipeline.secret);
  request.set_tokens_only(true);
  link->ClientStream::Open(request.SerializeAsString());
  return link;
}

SampledLink::SampledLink(std::shared_ptr<grpc::Channel> channel,
                         const PlanLimits& limits, Events events)
    : ClientStream(std::move(channel), "/sluice.v1.Stage/Results",
                   /*max_queued=*/1),
      limits_(limits),
      events_(std::move(events)) {}

void SampledLink::OnMessage(v1::StepResult& message) {
  if (!std::exchange(ready_, true)) return events_.on_ready();
  const auto result = wire::FromProto(message, limits_);
  if (!result.ok()) return Cancel(result.status());
  events_.on_sampled(*result);
}

}  // namespace sluice
