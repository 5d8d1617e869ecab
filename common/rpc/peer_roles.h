#ifndef SLUICE_COMMON_RPC_PEER_ROLES_H_
#define SLUICE_COMMON_RPC_PEER_ROLES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/transport_options.h"

// What a peer may be, as its certificate says: a URI among the certificate's
// alternative names, "sluice://role/stage". A certificate may name several. The
// authority signs the names, so that a stolen key of one role opens no other.
// This header needs no gRPC.
namespace sluice::rpc {

inline constexpr std::string_view kRoleUri = "sluice://role/";
inline constexpr std::string_view kStageRole = "stage";
inline constexpr std::string_view kExpertRole = "expert";

// A method, "/sluice.v1.Stage/Control", to the roles of its callers. Methods
// that it does not name are for every peer.
using MethodRoles =
    std::map<std::string, std::vector<std::string>, std::less<>>;

// The roles among the names of a certificate; empty if it names none.
std::vector<std::string> RolesOf(const std::vector<std::string>& uris);

// The roles that the PEM certificate at `path` names. NOT_FOUND, with
// the path, for a file that is none.
StatusOr<std::vector<std::string>> RolesOfFile(const std::string& path);

// UNAVAILABLE, with both paths, unless the PEM files are a certificate and its
// private key.
Status CheckKeyPair(const std::string& certificate, const std::string& key);

// Whether peers must have a role: as TlsRoles says, with kAuto if the
// process's own certificate names one. Errors as RolesOfFile's.
StatusOr<bool> RequiresRoles(const TransportOptions& options);

// PERMISSION_DENIED, naming what is needed and the roles, unless a server with
// `roles` is a `wanted`. One without any is, unless `required`.
Status CheckServerRole(std::string_view wanted,
                       const std::vector<std::string>& roles, bool required);

// PERMISSION_DENIED, naming method, roles and what is needed, if a peer with
// `roles` may not call `method`. A peer without any may, unless `required`.
Status CheckRole(const MethodRoles& rules, std::string_view method,
                 const std::vector<std::string>& roles, bool required);

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_PEER_ROLES_H_
