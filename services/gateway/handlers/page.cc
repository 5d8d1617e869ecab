#include <string>
#include <utility>

#include "services/gateway/handlers/handlers.h"
#include "services/gateway/page/page_files.h"

namespace sluice::gateway {
namespace {

// The page runs its own scripts and connects to its own origin alone; of its
// code DOMPurify alone may turn text into HTML (Trusted Types).
constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify";

// Returns whether an If-None-Match header names `etag`, weakly compared.
bool NamesTag(std::string_view if_none_match, std::string_view etag) {
  return if_none_match == "*" || if_none_match.find(etag) != if_none_match.npos;
}

http::HttpResponse PageResponse(const PageFile& file,
                                std::string_view if_none_match) {
  http::HttpResponse response;
  response.headers = {
      {"ETag", std::string(file.etag)},
      // Browsers revalidate: a new gateway's page shows at once.
      {"Cache-Control", "no-cache"},
      {"Content-Security-Policy", kPagePolicy},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
  };
  if (NamesTag(if_none_match, file.etag)) {
    response.status = 304;
    response.content_type.clear();
    return response;
  }
  response.content_type = file.content_type;
  response.body = file.bytes;
  return response;
}

}  // namespace

void AddPageHandlers(http::Router& router) {
  for (const PageFile& file : PageFiles()) {
    router.Add("GET", file.path, [&file](std::shared_ptr<http::Exchange> on) {
      on->Send(PageResponse(file, on->request().Header("if-none-match")));
    });
  }
}

}  // namespace sluice::gateway
