#include "common/http/cors.h"

#include <algorithm>
#include <iterator>

#include "common/http/authority.h"

namespace sluice::http {
namespace {

constexpr char kExposedHeaders[] =
    "X-Request-Id, Request-Id, Retry-After, Retry-After-Ms, "
    "OpenAI-Processing-Ms, Traceparent";
constexpr char kAllowedMethods[] = "GET, HEAD, POST, OPTIONS";
// Without Access-Control-Request-Headers.
constexpr char kAllowedHeaders[] =
    "Authorization, X-Api-Key, Content-Type, X-Request-Id, Traceparent, "
    "X-Sluice-Trace, Last-Event-ID";
constexpr char kMaxAgeSeconds[] = "7200";  // the most that browsers keep
constexpr size_t kMaxRequestHeaders = 4096;

constexpr std::string_view kLocalSchemes[] = {"app", "file", "tauri",
                                              "vscode-file", "vscode-webview"};

bool IsLocalOrigin(std::string_view origin) {
  const size_t colon = origin.find("://");
  if (colon == origin.npos) return false;
  const std::string scheme = AsciiLower(origin.substr(0, colon));
  const std::string_view rest = origin.substr(colon + 3);
  if (scheme == "http" || scheme == "https") {
    const auto authority = ParseAuthority(rest);
    return authority && IsLoopback(*authority);
  }
  return std::find(std::begin(kLocalSchemes), std::end(kLocalSchemes),
                   scheme) != std::end(kLocalSchemes) &&
         std::all_of(rest.begin(), rest.end(),
                     [](char c) { return c > ' ' && c < 0x7f && c != ','; });
}

bool IsScheme(std::string_view text) {
  return !text.empty() && text.front() >= 'a' && text.front() <= 'z' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '+' || c == '-' || c == '.';
         });
}

bool IsOrigin(std::string_view text) {
  const size_t colon = text.find("://");
  if (colon == text.npos) return false;
  const std::string scheme = AsciiLower(text.substr(0, colon));
  const std::string_view host = text.substr(colon + 3);
  return IsScheme(scheme) && (!host.empty() || scheme == "file") &&
         std::all_of(host.begin(), host.end(), [](char c) {
           return c > ' ' && c < 0x7f && c != '/' && c != '*' && c != ',' &&
                  c != '?' && c != '#';
         });
}

// Header names and commas: nothing that could break out of a header.
bool IsHeaderList(std::string_view text) {
  return !text.empty() && text.size() <= kMaxRequestHeaders &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || c == '-' || c == '_' || c == ',' ||
                  c == ' ';
         });
}

}  // namespace

StatusOr<CorsPolicy> CorsPolicy::Parse(
    const std::vector<std::string>& origins) {
  CorsPolicy policy;
  for (const std::string& origin : origins) {
    if (origin.empty()) continue;
    if (origin == "*") {
      policy.all_ = true;
    } else if (IsOrigin(origin)) {
      policy.origins_.push_back(AsciiLower(origin));
    } else {
      return InvalidArgument("origin \"", origin,
                             "\" is neither * nor scheme://host[:port]");
    }
  }
  return policy;
}

bool CorsPolicy::Allows(std::string_view origin) const {
  return (local_ && IsLocalOrigin(origin)) ||
         std::find(origins_.begin(), origins_.end(), AsciiLower(origin)) !=
             origins_.end();
}

void CorsPolicy::AddTo(std::string_view origin, HttpHeaders& headers) const {
  if (all_) {
    headers.emplace_back("Access-Control-Allow-Origin", "*");
  } else if (local_ || !origins_.empty()) {
    headers.emplace_back("Vary", "Origin");
    if (!Allows(origin)) return;
    headers.emplace_back("Access-Control-Allow-Origin", origin);
  } else {
    return;
  }
  headers.emplace_back("Access-Control-Expose-Headers", kExposedHeaders);
}

std::optional<HttpResponse> CorsPolicy::Preflight(
    const HttpRequest& request) const {
  if (request.method != "OPTIONS" || request.Header("origin").empty() ||
      request.Header("access-control-request-method").empty()) {
    return std::nullopt;
  }
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  if (!Admits(request.Header("origin"))) return response;
  // SDKs send headers of their own, and "*" would not cover Authorization:
  // so what is asked for is allowed.
  const std::string_view asked =
      request.Header("access-control-request-headers");
  response.headers = {
      {"Access-Control-Allow-Methods", kAllowedMethods},
      {"Access-Control-Allow-Headers",
       IsHeaderList(asked) ? std::string(asked) : kAllowedHeaders},
      {"Access-Control-Max-Age", kMaxAgeSeconds},
  };
  return response;
}

}  // namespace sluice::http
