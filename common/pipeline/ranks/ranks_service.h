#ifndef SLUICE_COMMON_PIPELINE_RANKS_RANKS_SERVICE_H_
#define SLUICE_COMMON_PIPELINE_RANKS_RANKS_SERVICE_H_

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "common/pipeline/ranks/lead_ranks.h"
#include "common/rpc/peer_roles.h"
#include "common/rpc/rpc_observer.h"

namespace sluice {

// Returns the gRPC service `sluice.v1.Ranks` over `lead`. `observer` may be
// null and must outlive the server.
std::unique_ptr<grpc::Service> MakeRanksService(std::shared_ptr<LeadRanks> lead,
                                                rpc::RpcObserver* observer);

// Returns who may call its RPC: other processes of the stage.
rpc::MethodRoles RanksMethodRoles();

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_RANKS_RANKS_SERVICE_H_
