#ifndef SLUICE_TESTS_SIMULATION_HOST_COMMON_RPC_TRANSPORT_H_
#define SLUICE_TESTS_SIMULATION_HOST_COMMON_RPC_TRANSPORT_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/rpc/peer_roles.h"
#include "common/rpc/transport_options.h"

namespace sluice::rpc {

// Returns a new connection of the process whose fibre runs.
StatusOr<std::shared_ptr<grpc::Channel>> Connect(
    const std::string& address, const TransportOptions& options,
    std::string_view server_role = "");

}  // namespace sluice::rpc

#endif  // SLUICE_TESTS_SIMULATION_HOST_COMMON_RPC_TRANSPORT_H_
