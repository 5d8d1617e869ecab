#ifndef SLUICE_COMMON_PIPELINE_STAGE_SAMPLED_LINK_H_
#define SLUICE_COMMON_PIPELINE_STAGE_SAMPLED_LINK_H_

#include <functional>
#include <memory>
#include <string>

#include "common/core/step_plan.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/transport_options.h"
#include "common/wire/stage.h"

namespace sluice {

// The first stage's end of a Results stream with tokens alone, which the last
// stage samples for chunks whose token the gateway does not know yet.
class SampledLink
    : public rpc::ClientStream<v1::ResultsRequest, v1::StepResult> {
 public:
  // From gRPC's threads; none may block. on_end comes once and last.
  struct Events {
    std::function<void()> on_ready;  // the last stage accepts the hello
    std::function<void(const StepResult&)> on_sampled;
    std::function<void(const Status&)> on_end;
  };
  // Opens the stream of `pipeline` to the last stage, at `address`.
  static StatusOr<std::shared_ptr<SampledLink>> Open(
      const std::string& address, const wire::PipelineName& pipeline,
      const PlanLimits& limits, rpc::TransportOptions transport, Events events);
  // Use Open.
  SampledLink(std::shared_ptr<grpc::Channel> channel, const PlanLimits& limits,
              Events events);

 private:
  void OnMessage(v1::StepResult& message) override;
  void OnEnd(const Status& status) override { events_.on_end(status); }

  const PlanLimits limits_;
  const Events events_;
  bool ready_ = false;  // gRPC reads one message at a time
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_SAMPLED_LINK_H_
