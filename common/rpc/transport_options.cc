#include "common/rpc/transport_options.h"

#include <charconv>
#include <string_view>

namespace sluice::rpc {
namespace {

constexpr std::string_view kUnix = "unix:";

constexpr Range kPeerTimeout{0.1, 3600};  // seconds

OptionValue RolesValue(TlsRoles* roles) {
  return option::Words(roles, {{"auto", TlsRoles::kAuto},
                               {"require", TlsRoles::kRequire},
                               {"allow", TlsRoles::kAllow}});
}

Status CheckSocketPath(const std::string& address) {
  const std::string path = SocketPath(address);
  if (path.empty()) {
    return InvalidArgument("address '", address, "' names no socket file");
  }
  if (path.size() > kMaxSocketPath) {
    return InvalidArgument("address '", address, "': the path has ",
                           path.size(), " bytes, limit ", kMaxSocketPath);
  }
  const size_t odd = path.find_first_of("%?#");
  if (odd == std::string::npos) return OkStatus();
  return InvalidArgument("address '", address, "': the path has a '",
                         path.substr(odd, 1), "'");
}

OptionRows Rows(TransportOptions& options, const char* ca,
                const char* insecure) {
  return {
      {"tls-cert", &options.tls_cert, "PEM file: this process's certificate"},
      {"tls-key", &options.tls_key, "PEM file: its key"},
      {"tls-ca", &options.tls_ca, ca},
      {"tls-roles", RolesValue(&options.roles),
       "whether peers, callers and servers, need a role in their "
       "certificates: require, allow those without a role, or auto: they do "
       "where --tls-cert names one"},
      {"insecure", &options.insecure, insecure},
      {"peer-timeout",
       option::Seconds(&options.peer_timeout, kPeerTimeout.low,
                       kPeerTimeout.high),
       "seconds of silence after which a connection to a peer is given up"}};
}

}  // namespace

StatusOr<TlsRoles> ParseTlsRoles(const std::string& text) {
  TlsRoles roles{};
  SLUICE_RETURN_IF_ERROR(RolesValue(&roles).set("tls-roles", text));
  return roles;
}

OptionRows GatewayRowsOf(TransportOptions& options) {
  return Rows(options, "PEM file: who signs the stages",
              "plain text to stages beyond loopback");
}

OptionRows ServerRowsOf(TransportOptions& options) {
  OptionRows rows = Rows(options, "PEM file: who signs the peers",
                         "plain text beyond loopback");
  rows.push_back({"reflection", &options.reflection,
                  "gRPC reflection: tells everybody what messages there are"});
  return rows;
}

Status Validate(const TransportOptions& options) {
  const bool any = !options.tls_cert.empty() || !options.tls_key.empty() ||
                   !options.tls_ca.empty();
  const bool all = !options.tls_cert.empty() && !options.tls_key.empty() &&
                   !options.tls_ca.empty();
  if (any && !all) {
    return InvalidArgument(
        "--tls-cert, --tls-key and --tls-ca belong together; given are cert '",
        options.tls_cert, "', key '", options.tls_key, "', ca '",
        options.tls_ca, "'");
  }
  if (all && options.insecure) {
    return InvalidArgument("--insecure contradicts --tls-cert ",
                           options.tls_cert);
  }
  if (!all && options.roles == TlsRoles::kRequire) {
    return InvalidArgument("--tls-roles require needs --tls-cert, --tls-key ",
                           "and --tls-ca");
  }
  const double timeout = Seconds(options.peer_timeout);
  if (!(timeout >= kPeerTimeout.low && timeout <= kPeerTimeout.high)) {
    return InvalidArgument("peer timeout must be between ", kPeerTimeout.low,
                           " s and ", kPeerTimeout.high, " s, got ", timeout,
                           " s");
  }
  if (options.max_message_bytes < 1024 ||
      options.max_message_bytes >= int64_t{1} << 31) {
    return InvalidArgument("largest message must be between 1 KiB and 2 GiB, ",
                           "got ", options.max_message_bytes, " bytes");
  }
  return OkStatus();
}

StatusOr<Address> ParseAddress(const std::string& address) {
  if (address.starts_with(kUnix)) {
    SLUICE_RETURN_IF_ERROR(CheckSocketPath(address));
    return Address{address, 0};
  }
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    return InvalidArgument("address must be host:port, got '", address, "'");
  }
  Address parsed;
  parsed.host = address.substr(0, colon);
  if (parsed.host.front() == '[' && parsed.host.back() == ']') {
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  } else if (parsed.host.find(':') != std::string::npos) {
    return InvalidArgument("an IPv6 address needs brackets, [", parsed.host,
                           "]:", address.substr(colon + 1), "; got '", address,
                           "'");
  }
  const char* begin = address.data() + colon + 1;
  const char* end = address.data() + address.size();
  const auto [stop, error] = std::from_chars(begin, end, parsed.port);
  if (error != std::errc() || stop != end || parsed.port < 0 ||
      parsed.port > 65535 || parsed.host.empty()) {
    return InvalidArgument("address must be host:port with a port between 0 ",
                           "and 65535, got '", address, "'");
  }
  return parsed;
}

std::string SocketPath(const std::string& address) {
  if (!address.starts_with(kUnix)) return "";
  const std::string path = address.substr(kUnix.size());
  return path.starts_with("///") ? path.substr(2) : path;
}

bool IsLoopback(const Address& address) {
  const std::string& host = address.host;
  if (host.starts_with(kUnix) || host == "localhost" || host == "::1") {
    return true;
  }
  // Digits and dots only: "127.example.com" is an ordinary name.
  return host.starts_with("127.") &&
         host.find_first_not_of("0123456789.") == std::string::npos;
}

Status CheckAddress(const std::string& address,
                    const TransportOptions& options) {
  SLUICE_RETURN_IF_ERROR(Validate(options));
  SLUICE_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  if (options.tls() || options.insecure || IsLoopback(parsed)) {
    return OkStatus();
  }
  return InvalidArgument(
      "address ", address, " is beyond loopback: give --tls-cert, --tls-key ",
      "and --tls-ca, or --insecure to speak plain text on a trusted network");
}

}  // namespace sluice::rpc
