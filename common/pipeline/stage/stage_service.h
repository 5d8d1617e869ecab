#ifndef SLUICE_COMMON_PIPELINE_STAGE_STAGE_SERVICE_H_
#define SLUICE_COMMON_PIPELINE_STAGE_STAGE_SERVICE_H_

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "common/pipeline/stage/stage_session.h"
#include "common/rpc/peer_roles.h"
#include "common/rpc/rpc_observer.h"

namespace sluice {

// Returns the gRPC service `sluice.v1.Stage` over `session`: one handler per
// RPC. `observer` may be null and must outlive the server.
std::unique_ptr<grpc::Service> MakeStageService(
    std::shared_ptr<StageSession> session, rpc::RpcObserver* observer);

// Returns who may call which of its RPCs: a gateway Control and ResetTerm; the
// first stage has steps from a gateway, others from a stage; results go to the
// gateway, and sampled tokens to the first stage.
rpc::MethodRoles StageMethodRoles();

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_STAGE_SERVICE_H_
