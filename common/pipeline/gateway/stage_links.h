#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_LINKS_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_LINKS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/rpc/client_stream.h"
#include "common/rpc/credited_sender.h"
#include "common/wire/stage.h"

// The gateway's streams. All callbacks come from gRPC's threads and may not
// block; on_end comes once and last.
namespace sluice {

inline constexpr char kControlMethod[] = "/sluice.v1.Stage/Control";
inline constexpr char kStepsMethod[] = "/sluice.v1.Stage/Steps";
inline constexpr char kResultsMethod[] = "/sluice.v1.Stage/Results";

// A client stream that gives its messages and its end to two functions.
template <typename Out, typename In>
class Link : public rpc::ClientStream<Out, In> {
 public:
  struct Events {
    std::function<void(In&)> on_message;
    std::function<void(const Status&)> on_end;
  };
  Link(std::shared_ptr<grpc::Channel> channel, const char* method,
       Events events)
      : rpc::ClientStream<Out, In>(std::move(channel), method, kMaxQueued),
        events_(std::move(events)) {}

 private:
  // A peer that reads nothing for this many heartbeats is lost anyway.
  static constexpr size_t kMaxQueued = 256;

  void OnMessage(In& message) override { events_.on_message(message); }
  void OnEnd(const Status& status) override { events_.on_end(status); }

  const Events events_;
};

using ControlLink = Link<v1::ControlRequest, v1::ControlResponse>;
using ResultsLink = Link<v1::ResultsRequest, v1::StepResult>;

// Opens Control.
std::shared_ptr<ControlLink> OpenControl(std::shared_ptr<grpc::Channel> channel,
                                         const v1::Hello& hello,
                                         ControlLink::Events events);

// Opens Results; the gateway sends nothing on it.
std::shared_ptr<ResultsLink> OpenResults(std::shared_ptr<grpc::Channel> channel,
                                         const wire::PipelineName& pipeline,
                                         ResultsLink::Events events);

// Returns the frame of a plan for the first stage. A traced plan's frame asks
// the stages for their part.
grpc::ByteBuffer PlanFrame(const StepPlan& plan);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STAGE_LINKS_H_
