#include "common/http/router.h"

#include <utility>

#include "common/base/cat.h"
#include "common/http/error_answer.h"

namespace sluice::http {
namespace {

bool IsCanonical(std::string_view path) {
  return path.find("//") == path.npos &&
         (path.size() < 2 || path.back() != '/');
}

std::string WithoutSpareSlashes(std::string_view path) {
  std::string out;
  for (const char c : path) {
    if (c != '/' || out.empty() || out.back() != '/') out += c;
  }
  if (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

// Returns the part of `path` behind `prefix`, where each slash of `prefix` but
// the last may stand for several; empty without it, or if it is of slashes.
std::string_view BehindPrefix(std::string_view path, std::string_view prefix) {
  for (const char c : prefix.substr(0, prefix.size() - 1)) {
    if (!path.starts_with(c)) return {};
    path.remove_prefix(1);
    while (c == '/' && path.starts_with('/')) path.remove_prefix(1);
  }
  if (path.find_first_not_of('/') == path.npos) return {};
  return path.starts_with('/') ? path.substr(1) : std::string_view();
}

}  // namespace

void Router::Add(std::string_view method, std::string_view path,
                 Handler handler) {
  routes_[std::string(path)][std::string(method)] = std::move(handler);
}

void Router::AddVerbatim(std::string_view method, std::string_view path,
                         Handler handler) {
  Add(method, path, std::move(handler));
  verbatim_.emplace_back(path.substr(0, path.size() - 1));
}

std::vector<std::string> Router::Routes() const {
  std::vector<std::string> routes;
  for (const auto& [path, methods] : routes_) {
    for (const auto& [method, unused] : methods) {
      routes.push_back(Cat(method, " ", path));
    }
  }
  return routes;
}

const Router::Methods* Router::Find(std::string_view path,
                                    std::string_view& pattern) const {
  if (const auto found = routes_.find(path); found != routes_.end()) {
    pattern = found->first;
    return &found->second;
  }
  // "/a/b/c" is served by "/a/b/*", else by "/a/*". There are few patterns,
  // and a path may have thousands of slashes: so it is they that are tried.
  size_t longest = 0;
  const Methods* methods = nullptr;
  for (const auto& [candidate, served] : routes_) {
    if (!candidate.ends_with("/*")) continue;
    const std::string_view prefix(candidate.data(), candidate.size() - 1);
    // There must be something for the star.
    if (path.size() == prefix.size() || !path.starts_with(prefix)) continue;
    if (prefix.size() <= longest) continue;
    longest = prefix.size();
    pattern = candidate;
    methods = &served;
  }
  return methods;
}

std::string Router::Canonical(std::string path) const {
  if (IsCanonical(path)) return path;
  for (const std::string& prefix : verbatim_) {
    const std::string_view rest = BehindPrefix(path, prefix);
    if (!rest.empty()) return Cat(prefix, rest);
  }
  return WithoutSpareSlashes(path);
}

std::string Router::AllowOf(const Methods& methods) {
  std::string allow;
  for (const auto& [name, unused] : methods) {
    allow += name == "GET" ? "GET, HEAD, " : name + ", ";
  }
  return allow + "OPTIONS";
}

std::optional<HttpResponse> Router::Refusal(const HttpRequest& request) const {
  if (request.method == "OPTIONS") return std::nullopt;
  std::string_view pattern;
  const Methods* const methods = Find(request.path, pattern);
  if (methods == nullptr) {
    return ErrorResponse(
        {404, "There is no " + request.path.substr(0, 200) + " here",
         "invalid_request_error", std::nullopt, "not_found"});
  }
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  if (methods->find(method) != methods->end()) return std::nullopt;
  const std::string allow = AllowOf(*methods);
  HttpResponse response = ErrorResponse({405, Cat(pattern, " takes ", allow),
                                         "invalid_request_error", std::nullopt,
                                         "method_not_allowed"});
  response.headers.emplace_back("Allow", allow);
  return response;
}

void Router::Route(std::shared_ptr<Exchange> exchange) const {
  HttpRequest& request = exchange->request();
  request.path = Canonical(std::move(request.path));
  if (request.path == "*") {  // OPTIONS: about the server as a whole
    exchange->Send({204, "", {{"Allow", "GET, HEAD, POST, OPTIONS"}}, ""});
    return;
  }
  std::string_view pattern = "other";
  const Methods* const methods = Find(request.path, pattern);
  exchange->set_route(pattern);
  if (auto refusal = Refusal(request)) {
    return exchange->Send(*std::move(refusal));
  }
  if (methods == nullptr) {
    HttpRequest unknown;  // of any method
    unknown.path = request.path;
    return exchange->Send(*Refusal(unknown));
  }
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  if (const auto handler = methods->find(method); handler != methods->end()) {
    return handler->second(std::move(exchange));
  }
  exchange->Send({204, "", {{"Allow", AllowOf(*methods)}}, ""});
}

}  // namespace sluice::http
