#include <string_view>

#include "common/serving/error.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {
namespace {

// Paths for POST.
constexpr std::string_view kUnbuilt[] = {
    "/v1/responses",
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

}  // namespace

void AddUnbuiltHandlers(http::Router& router) {
  for (const std::string_view path : kUnbuilt) {
    // 404, not 501: clients retry 5xx.
    const auto refuse = [path](std::shared_ptr<http::Exchange> on) {
      on->Send(http::ErrorResponse(serving::ToApiError(serving::WithCode(
          NotFound(path,
                   " is not built; there are /v1/chat/completions and "
                   "/v1/completions"),
          "unsupported_endpoint"))));
    };
    router.Add("POST", path, refuse);
  }
}

}  // namespace sluice::gateway
