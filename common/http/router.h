#ifndef SLUICE_COMMON_HTTP_ROUTER_H_
#define SLUICE_COMMON_HTTP_ROUTER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/http/exchange.h"
#include "common/http/message.h"

namespace sluice::http {

// Paths and methods to handlers. Filled before the server starts, const
// afterwards, then safe from every loop.
class Router {
 public:
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;

  // `method`: "GET" (which serves HEAD too) or "POST". `path` may end in
  // "/*": anything further, slashes included.
  void Add(std::string_view method, std::string_view path, Handler handler);
  // The same of a path that ends in "/*", where each slash of what the star
  // stands for counts.
  void AddVerbatim(std::string_view method, std::string_view path,
                   Handler handler);

  // Returns "GET /path" of each Add, sorted by path and method.
  std::vector<std::string> Routes() const;

  // Returns `path` without its double slashes and those at its end, which
  // Route serves in its place; but for the star's part of AddVerbatim.
  std::string Canonical(std::string path) const;
  // The answer that refuses a request with this method and canonical path: 404,
  // or 405 with Allow. Nothing for one that Route serves or answers itself.
  std::optional<HttpResponse> Refusal(const HttpRequest& request) const;

  // Makes the request's path canonical and runs the handler, or answers 404,
  // 405 or OPTIONS itself.
  void Route(std::shared_ptr<Exchange> exchange) const;

 private:
  using Methods = std::map<std::string, Handler, std::less<>>;
  const Methods* Find(std::string_view path, std::string_view& pattern) const;
  static std::string AllowOf(const Methods& methods);

  std::map<std::string, Methods, std::less<>> routes_;
  std::vector<std::string> verbatim_;  // paths of AddVerbatim up to the star
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_ROUTER_H_
