#include <string_view>

#include "common/serving/error.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {
namespace {

// Paths for POST.
constexpr std::string_view kUnbuilt[] = {
    "/v1/moderations",
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/images/variations",
    "/v1/fine_tuning/jobs",
    "/v1/files",
    "/v1/batches",
    "/v1/rerank",
    "/v1/score",
    "/rerank",
};

// Ollama's paths for what its own server does.
struct OllamaPath {
  std::string_view method;
  std::string_view path;
  std::string_view why;
};
constexpr std::string_view kOneModel =
    "is not served: this server has the one model that its operator chose";
constexpr OllamaPath kOllamaPaths[] = {
    {"POST", "/api/push", kOneModel},   {"POST", "/api/create", kOneModel},
    {"POST", "/api/copy", kOneModel},   {"DELETE", "/api/delete", kOneModel},
    {"GET", "/api/blobs/*", kOneModel}, {"POST", "/api/blobs/*", kOneModel},
};

void Refuse(http::Router& router, std::string_view method,
            std::string_view path, std::string_view why) {
  // 404, not 501: clients retry 5xx.
  router.Add(method, path, [path, why](std::shared_ptr<http::Exchange> on) {
    on->SendError(serving::ToApiError(
        serving::WithCode(NotFound(path, " ", why), "unsupported_endpoint")));
  });
}

}  // namespace

void AddUnbuiltHandlers(http::Router& router) {
  for (const std::string_view path : kUnbuilt) {
    Refuse(router, "POST", path,
           "is not built; there are /v1/chat/completions and /v1/completions");
  }
  for (const OllamaPath& path : kOllamaPaths) {
    Refuse(router, path.method, path.path, path.why);
  }
}

}  // namespace sluice::gateway
