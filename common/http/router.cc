#include "common/http/router.h"

#include "common/base/cat.h"
#include "common/http/error_answer.h"

namespace sluice::http {

void Router::Add(std::string_view method, std::string_view path,
                 Handler handler) {
  routes_[std::string(path)][std::string(method)] = std::move(handler);
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

void Router::Route(std::shared_ptr<Exchange> exchange) const {
  const HttpRequest& request = exchange->request();
  if (request.path == "*") {  // OPTIONS: about the server as a whole
    exchange->Send({204, "", {{"Allow", "GET, HEAD, POST, OPTIONS"}}, ""});
    return;
  }
  std::string_view pattern = "other";
  const Methods* methods = Find(request.path, pattern);
  exchange->set_route(pattern);
  if (methods == nullptr) {
    exchange->Send(ErrorResponse(
        {404, "There is no " + request.path.substr(0, 200) + " here",
         "invalid_request_error", std::nullopt, "not_found"}));
    return;
  }
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  if (const auto handler = methods->find(method); handler != methods->end()) {
    handler->second(std::move(exchange));
    return;
  }
  std::string allow;
  for (const auto& [name, unused] : *methods) {
    allow += name == "GET" ? "GET, HEAD, " : name + ", ";
  }
  allow += "OPTIONS";
  if (method == "OPTIONS") {
    exchange->Send({204, "", {{"Allow", allow}}, ""});
    return;
  }
  HttpResponse response = ErrorResponse({405, Cat(pattern, " takes ", allow),
                                         "invalid_request_error", std::nullopt,
                                         "method_not_allowed"});
  response.headers.emplace_back("Allow", allow);
  exchange->Send(std::move(response));
}

}  // namespace sluice::http
