#include <string_view>

#include "common/openai/error.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {
namespace {

constexpr std::string_view kUnbuilt[] = {
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
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
};

}  // namespace

void AddUnbuiltHandlers(Router& router) {
  for (const std::string_view path : kUnbuilt) {
    // Not 501: clients try 5xx again.
    router.Add("POST", path, [path](std::shared_ptr<Exchange> on) {
      on->Send(ErrorResponse(ToApiError(
          WithCode(NotFound(path,
                            " is not built; there are /v1/chat/completions and "
                            "/v1/completions"),
                   "unsupported_endpoint"))));
    });
  }
}

}  // namespace sluice::gateway
