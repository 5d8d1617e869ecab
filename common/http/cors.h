#ifndef SLUICE_COMMON_HTTP_CORS_H_
#define SLUICE_COMMON_HTTP_CORS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/http/message.h"

namespace sluice::http {

// Which origins' web pages may read answers (Fetch standard, section 3.2).
// Credentials are never allowed: a key goes into a header that the page's
// script sets.
class CorsPolicy {
 public:
  CorsPolicy() = default;  // no page but our own

  // `origins`: "*" for all pages, or "scheme://host[:port]" each, as browsers
  // and desktop programs send it.
  // INVALID_ARGUMENT names the one that is neither.
  static StatusOr<CorsPolicy> Parse(const std::vector<std::string>& origins);

  // Admits this machine's own pages too: of http(s)://localhost and other
  // loopback hosts at any port, and of its desktop programs, whose schemes no
  // web page has (file, app, tauri, vscode-webview, vscode-file). Not "null",
  // which a page of any site can send.
  void AdmitLocal() { local_ = true; }

  // Whether pages of `origin` may call at all.
  bool Admits(std::string_view origin) const { return all_ || Allows(origin); }

  // What an answer to a request with `origin` as its Origin, or with none,
  // has to carry.
  void AddTo(std::string_view origin, HttpHeaders& headers) const;

  // The answer to a browser's preflight; nothing if `request` is not one.
  std::optional<HttpResponse> Preflight(const HttpRequest& request) const;

 private:
  bool Allows(std::string_view origin) const;

  bool all_ = false;
  bool local_ = false;
  std::vector<std::string> origins_;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_CORS_H_
