#ifndef SLUICE_TESTS_SIMULATION_HOST_GRPCPP_IMPL_SERVICE_TYPE_H_
#define SLUICE_TESTS_SIMULATION_HOST_GRPCPP_IMPL_SERVICE_TYPE_H_

#include <grpcpp/server_context.h>

#include <string>

#include "tests/simulation/call_end.h"

namespace grpc {

class Service {
 public:
  virtual ~Service() = default;
  // Calls the method's handler. Null: there is none.
  virtual sluice::simulation::Reactor* Handle(
      const std::string& method, CallbackServerContext* context) = 0;
};

}  // namespace grpc

#endif  // SLUICE_TESTS_SIMULATION_HOST_GRPCPP_IMPL_SERVICE_TYPE_H_
