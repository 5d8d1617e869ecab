#ifndef SLUICE_COMMON_RPC_TRANSPORT_H_
#define SLUICE_COMMON_RPC_TRANSPORT_H_

#include <grpcpp/channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/listen_address.h"
#include "common/rpc/peer_roles.h"
#include "common/rpc/transport_options.h"

namespace sluice::rpc {

// A server with its address and its health service (names "", "startup",
// "liveness", "readiness"). Services must outlive it.
struct ListeningServer {
  ListenLock lock;  // of a socket file, as long as the server exists
  std::unique_ptr<grpc::Service> health;
  std::unique_ptr<grpc::Server> server;
  std::string address;  // with the chosen port
};

// Binds `address` and serves `services`. Port 0: the system chooses. A socket
// file has mode 0600 and replaces a stale one. With TLS a caller is held to
// `roles` before its call is taken in. Errors: INVALID_ARGUMENT as
// CheckAddress's, NOT_FOUND for a missing TLS file, UNAVAILABLE if the address
// cannot be bound.
StatusOr<ListeningServer> Listen(const std::string& address,
                                 const TransportOptions& options,
                                 const std::vector<grpc::Service*>& services,
                                 MethodRoles roles = {});
inline StatusOr<ListeningServer> Listen(const std::string& address,
                                        const TransportOptions& options,
                                        grpc::Service* service,
                                        MethodRoles roles = {}) {
  return Listen(address, options, std::vector<grpc::Service*>{service},
                std::move(roles));
}

// Sets "startup" and "readiness". "" and "liveness" are always SERVING.
void SetReady(grpc::Server& server, bool ready);

// Returns a new connection to `address`, shared with no other channel. It
// connects when first used, again after 100 ms to 2 s. With TLS the server's
// certificate must be for the address and, as TransportOptions::roles says,
// have the role `server_role`; empty: it may have any. Else there is no
// connection, and nothing is sent. Errors as Listen's.
StatusOr<std::shared_ptr<grpc::Channel>> Connect(
    const std::string& address, const TransportOptions& options,
    std::string_view server_role = "");

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_TRANSPORT_H_
