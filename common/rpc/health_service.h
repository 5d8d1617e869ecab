#ifndef SLUICE_COMMON_RPC_HEALTH_SERVICE_H_
#define SLUICE_COMMON_RPC_HEALTH_SERVICE_H_

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/service_type.h>

#include <memory>

namespace sluice::rpc {

// Check of gRPC's health protocol (grpc.health.v1.Health), for probes of any
// peer. gRPC's own service reads requests of any size and duration; this one
// drops a request that is not complete within a moment. Watch is UNIMPLEMENTED.
// Must outlive the server.
class HealthService : public grpc::Service {
 public:
  HealthService();
  ~HealthService() override;

  // Returns the server's interface to this service, for
  // GetHealthCheckService(). The name "" is SERVING from the beginning; other
  // names are NOT_FOUND until set.
  std::unique_ptr<grpc::HealthCheckServiceInterface> Interface() const;

 private:
  class State;
  class Stream;
  class Setter;
  const std::shared_ptr<State> state_;
};

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_HEALTH_SERVICE_H_
