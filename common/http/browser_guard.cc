#include "common/http/browser_guard.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/cat.h"
#include "common/http/authority.h"
#include "common/http/error_answer.h"

namespace sluice::http {
namespace {

// Probes and scrapers come under any name, and change nothing.
constexpr std::string_view kProbePaths[] = {"/livez", "/readyz", "/health",
                                            "/ping", "/metrics"};
constexpr size_t kShownBytes = 100;

bool IsHostChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// This machine as its containers name it. No site has a name below "internal",
// which is for private use.
constexpr std::string_view kContainerHosts[] = {
    "host.docker.internal", "gateway.docker.internal",
    "host.containers.internal", "host.lima.internal"};

bool IsSameOrigin(std::string_view origin, std::string_view host) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!origin.starts_with(scheme)) continue;
    origin.remove_prefix(scheme.size());
    return !host.empty() && AsciiLower(origin) == AsciiLower(host);
  }
  return false;
}

bool IsJson(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  return AsciiLower(type) == "application/json";
}

HttpResponse Refusal(int status, std::string message, const char* code) {
  return ErrorResponse({status, std::move(message), "invalid_request_error",
                        std::nullopt, code});
}

}  // namespace

StatusOr<BrowserGuard> BrowserGuard::Create(Options options) {
  for (std::string& host : options.allowed_hosts) {
    host = AsciiLower(host);
    const bool name = std::all_of(host.begin(), host.end(), IsHostChar);
    if (host != "*" && (!name || host.empty())) {
      return InvalidArgument("allowed host \"", host,
                             "\" is neither a name without a port nor *");
    }
  }
  return BrowserGuard(std::move(options));
}

bool BrowserGuard::IsOurs(std::string_view authority) const {
  const auto& allowed = options_.allowed_hosts;
  const auto is_any = [](const std::string& one) { return one == "*"; };
  if (std::any_of(allowed.begin(), allowed.end(), is_any)) return true;
  const auto parsed = ParseAuthority(authority);
  if (!parsed) return false;
  // No other site can have an address as its name.
  if (parsed->address || parsed->name == "localhost") return true;
  const std::string& host = parsed->name;
  return std::find(std::begin(kContainerHosts), std::end(kContainerHosts),
                   host) != std::end(kContainerHosts) ||
         std::any_of(allowed.begin(), allowed.end(), [&](const auto& one) {
           return host == one || (one.front() == '.' && host.ends_with(one));
         });
}

std::optional<HttpResponse> BrowserGuard::Screen(
    const HttpRequest& request) const {
  const std::string_view host = request.Header("host");
  const bool probe = std::find(std::begin(kProbePaths), std::end(kProbePaths),
                               request.path) != std::end(kProbePaths);
  // No browser leaves the name out.
  if (options_.check_host && !probe && !host.empty() && !IsOurs(host)) {
    return Refusal(421,
                   Cat("This server is not ", host.substr(0, kShownBytes),
                       ": ask it by its IP address or as localhost, or start "
                       "it with --allowed-hosts"),
                   "host_not_allowed");
  }
  const std::string_view origin = request.Header("origin");
  if (origin.empty()) return std::nullopt;
  if (!IsSameOrigin(origin, host) && !options_.cors.Admits(origin)) {
    return Refusal(403,
                   Cat("Web pages of ", origin.substr(0, kShownBytes),
                       " may not use this server: it must be started with "
                       "--cors-origins"),
                   "origin_not_allowed");
  }
  if (request.method == "POST" && !IsJson(request.Header("content-type"))) {
    return Refusal(415,
                   "A POST with an Origin header needs the header "
                   "Content-Type: application/json",
                   "unsupported_content_type");
  }
  return std::nullopt;
}

}  // namespace sluice::http
