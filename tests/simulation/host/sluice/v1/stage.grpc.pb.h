#ifndef SLUICE_TESTS_SIMULATION_HOST_SLUICE_V1_STAGE_GRPC_PB_H_
#define SLUICE_TESTS_SIMULATION_HOST_SLUICE_V1_STAGE_GRPC_PB_H_

#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/server_callback.h>

#include <string>

#include "sluice/v1/stage.pb.h"

namespace sluice::v1 {

// What StageService overrides of the generated class.
class Stage {
 public:
  class Service : public grpc::Service {
   public:
    virtual grpc::ServerBidiReactor<ControlRequest, ControlResponse>* Control(
        grpc::CallbackServerContext* context) = 0;
    virtual grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Steps(
        grpc::CallbackServerContext* context) = 0;
    virtual grpc::ServerBidiReactor<ResultsRequest, StepResult>* Results(
        grpc::CallbackServerContext* context) = 0;
    virtual grpc::ServerBidiReactor<BlocksRequest, BlocksResponse>* Blocks(
        grpc::CallbackServerContext* context) = 0;
    virtual grpc::ServerBidiReactor<ResetTermRequest, ResetTermResponse>*
    ResetTerm(grpc::CallbackServerContext* context) = 0;

    simulation::Reactor* Handle(const std::string& method,
                                grpc::CallbackServerContext* context) override {
      if (method == "/sluice.v1.Stage/Control") return Control(context);
      if (method == "/sluice.v1.Stage/Steps") return Steps(context);
      if (method == "/sluice.v1.Stage/Results") return Results(context);
      if (method == "/sluice.v1.Stage/Blocks") return Blocks(context);
      if (method == "/sluice.v1.Stage/ResetTerm") return ResetTerm(context);
      return nullptr;
    }
  };
  template <typename Base>
  using WithRawCallbackMethod_Steps = Base;
  template <typename Base>
  using WithCallbackMethod_Control = Base;
  template <typename Base>
  using WithCallbackMethod_Results = Base;
  template <typename Base>
  using WithCallbackMethod_Blocks = Base;
  template <typename Base>
  using WithCallbackMethod_ResetTerm = Base;
};

}  // namespace sluice::v1

#endif  // SLUICE_TESTS_SIMULATION_HOST_SLUICE_V1_STAGE_GRPC_PB_H_
