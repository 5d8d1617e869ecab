#ifndef SLUICE_COMMON_EXPERTS_HOST_EXPERT_SERVICE_H_
#define SLUICE_COMMON_EXPERTS_HOST_EXPERT_SERVICE_H_

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "common/experts/host/expert_session.h"
#include "common/rpc/peer_roles.h"
#include "common/rpc/rpc_observer.h"

namespace sluice {

// The gRPC service `sluice.v1.Expert` over `session`. `observer` may be null
// and must outlive the server.
std::unique_ptr<grpc::Service> MakeExpertService(
    std::shared_ptr<ExpertSession> session, rpc::RpcObserver* observer);

// Returns who may call which of its RPCs: stages alone.
rpc::MethodRoles ExpertMethodRoles();

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_HOST_EXPERT_SERVICE_H_
