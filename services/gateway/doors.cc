#include "services/gateway/doors.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/http/authority.h"

namespace sluice::gateway {
namespace {

// The names by which other machines know this one.
std::vector<std::string> MachineNames() {
  std::array<char, 256> name{};  // HOST_NAME_MAX is 64
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  const auto host = http::ParseAuthority(name.data());
  if (!host || host->name.empty()) return {};
  return {host->name, host->name.substr(0, host->name.find('.'))};
}

// A listener beyond loopback needs keys, or --open.
Status CheckListener(const GatewayOptions& options, bool loopback) {
  const bool tls = !options.http_tls.certificate.empty();
  if (tls == options.http_tls.key.empty()) {
    return InvalidArgument(
        "--http-tls-cert and --http-tls-key are needed together");
  }
  if (loopback) return OkStatus();
  if (!AskForKeys(options) && !options.open) {
    return InvalidArgument(
        "--listen ", options.listen,
        " can be reached from other machines: give --api-key-file (or "
        "SLUICE_API_KEYS), or --open to let everybody in");
  }
  if (AskForKeys(options) && !tls) {
    LogWarning("API keys come in plain text to ", options.listen,
               ": give --http-tls-cert and --http-tls-key, unless TLS ends in "
               "front of this gateway");
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<http::ApiKeys>> OpenKeys(
    const GatewayOptions& options) {
  if (!options.api_key_file.empty() && !options.api_keys.empty()) {
    return InvalidArgument(
        "--api-key-file and SLUICE_API_KEYS are both given: take one");
  }
  if (!options.api_key_file.empty()) {
    return http::ApiKeys::Open(options.api_key_file);
  }
  if (!options.api_keys.empty()) {
    return http::ApiKeys::FromText(options.api_keys, "SLUICE_API_KEYS");
  }
  return std::unique_ptr<http::ApiKeys>();
}

}  // namespace

bool AskForKeys(const GatewayOptions& options) {
  return !options.api_key_file.empty() || !options.api_keys.empty();
}

StatusOr<std::unique_ptr<Doors>> Doors::Open(const GatewayOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const bool loopback,
                          http::IsLoopback(options.listen));
  SLUICE_RETURN_IF_ERROR(CheckListener(options, loopback));
  SLUICE_ASSIGN_OR_RETURN(http::CorsPolicy cors,
                          http::CorsPolicy::Parse(options.cors_origins));
  const bool asks = AskForKeys(options);
  if (loopback && !asks) cors.AdmitLocal();
  std::vector<std::string> hosts = options.allowed_hosts;
  if (!loopback) std::ranges::move(MachineNames(), std::back_inserter(hosts));
  SLUICE_ASSIGN_OR_RETURN(
      http::BrowserGuard guard,
      http::BrowserGuard::Create({!asks, std::move(hosts), cors}));
  auto proxies = http::TrustedProxies::Parse(options.trusted_proxies);
  if (!proxies.ok()) return Annotate(proxies.status(), "--trusted-proxies");
  SLUICE_ASSIGN_OR_RETURN(auto keys, OpenKeys(options));
  return std::unique_ptr<Doors>(new Doors(std::move(cors), *std::move(proxies),
                                          std::move(guard), std::move(keys)));
}

std::optional<http::HttpResponse> Doors::Screen(
    http::HttpRequest& request) const {
  auto refused = guard_.Screen(request);
  if (refused || !keys_) return refused;
  return keys_->Screen(request);
}

}  // namespace sluice::gateway
