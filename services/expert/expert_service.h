#ifndef SLUICE_SERVICES_EXPERT_EXPERT_SERVICE_H_
#define SLUICE_SERVICES_EXPERT_EXPERT_SERVICE_H_

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "common/rpc/rpc_observer.h"
#include "services/expert/expert_session.h"

namespace sluice {

// The gRPC service `sluice.v1.Expert` over `session`. `observer` may be null
// and must outlive the server.
std::unique_ptr<grpc::Service> MakeExpertService(
    std::shared_ptr<ExpertSession> session, rpc::RpcObserver* observer);

}  // namespace sluice

#endif  // SLUICE_SERVICES_EXPERT_EXPERT_SERVICE_H_
