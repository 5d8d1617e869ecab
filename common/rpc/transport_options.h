#ifndef SLUICE_COMMON_RPC_TRANSPORT_OPTIONS_H_
#define SLUICE_COMMON_RPC_TRANSPORT_OPTIONS_H_

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/option_row.h"
#include "common/base/status.h"

// How processes reach each other. This header needs no gRPC.
namespace sluice::rpc {

// Whether peers, callers and servers, need a role in their certificates
// (peer_roles.h): they do where this process's own certificate names one,
// always, or never. A role that a certificate does name counts in any case.
enum class TlsRoles { kAuto, kRequire, kAllow };
// INVALID_ARGUMENT unless `text` is auto, require or allow.
StatusOr<TlsRoles> ParseTlsRoles(const std::string& text);

struct TransportOptions {
  // PEM files: this process's certificate and key, and the authority that signs
  // its peers. All three or none. With them both sides are checked. Read again
  // within seconds when they change: connections made later use the new ones.
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
  TlsRoles roles = TlsRoles::kAuto;
  // Plain text is allowed beyond loopback. Not together with TLS.
  bool insecure = false;
  // A peer that is silent for this long is lost; keepalive follows from it.
  Duration peer_timeout = std::chrono::seconds(10);
  // Bytes of the largest message in either direction.
  int64_t max_message_bytes = int64_t{4} << 20;
  // gRPC reflection: any client can list the server's services and messages.
  bool reflection = false;

  bool tls() const { return !tls_cert.empty(); }
};

// Return the rows of a gateway, which is a client of stages, and of a server,
// which has --reflection, too.
OptionRows GatewayRowsOf(TransportOptions& options);
OptionRows ServerRowsOf(TransportOptions& options);

// INVALID_ARGUMENT for half a set of TLS files, TLS together with insecure, a
// peer timeout below 100 ms or above an hour, a message limit outside
// [1 KiB, 2 GiB).
Status Validate(const TransportOptions& options);

// Bytes of a socket file's path; the system takes no more.
inline constexpr size_t kMaxSocketPath = 107;

// "host:port", "[v6]:port" or "unix:path" taken apart.
struct Address {
  std::string host;  // "unix:path" for a socket file
  int port = 0;
};
// INVALID_ARGUMENT unless the port is within [0, 65535] and a host is named,
// or the path has 1 to kMaxSocketPath bytes and none of %, ? and #, which gRPC
// would not take as they are.
StatusOr<Address> ParseAddress(const std::string& address);

// Returns the path of a "unix:path" address; empty for others.
std::string SocketPath(const std::string& address);

// Whether the address is on this machine alone: "localhost", 127.x.x.x, ::1, or
// a socket file.
bool IsLoopback(const Address& address);

// INVALID_ARGUMENT, naming address and flags, if `address` may not be used with
// `options`, by a server to listen on or by a client to connect to: beyond
// loopback it needs TLS or `insecure`.
Status CheckAddress(const std::string& address,
                    const TransportOptions& options);

}  // namespace sluice::rpc

#endif  // SLUICE_COMMON_RPC_TRANSPORT_OPTIONS_H_
