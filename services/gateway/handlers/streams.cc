#include <memory>
#include <string>
#include <utility>

#include "common/http/sse.h"
#include "common/serving/answer_start.h"
#include "common/serving/error.h"
#include "common/serving/stream_journal.h"
#include "services/gateway/dialects.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {
namespace {

constexpr std::string_view kStreamsPath = "/v1/streams/";

// Returns the request of the stream that `request` is about. NOT_FOUND; or
// INVALID_ARGUMENT for a Last-Event-ID that is another request's.
StatusOr<serving::StreamJournal::Entry> FindStream(
    const serving::ServingContext& context, const http::HttpRequest& request) {
  serving::StreamJournal* const streams = context.streams;
  if (streams == nullptr || !context.rules.event_ids) {
    return serving::WithCode(
        NotFound("no streams are kept here, because events "
                 "have no ids (--no-event-ids)"),
        "stream_not_found");
  }
  const std::string id = request.path.substr(kStreamsPath.size());
  SLUICE_ASSIGN_OR_RETURN(serving::StreamJournal::Entry entry,
                          streams->Find(id, request.tenant));
  const std::string_view last = request.Header(serving::kLastEventIdHeader);
  if (last.empty()) return entry;
  SLUICE_ASSIGN_OR_RETURN(const serving::EventId resumed,
                          serving::ParseEventId(last));
  if (resumed.origin.request_id == id) return entry;
  return serving::EventIdError("is of request \"" + resumed.origin.request_id +
                               "\", the path names \"" + id + "\"");
}

// Answers as if the client had sent its request again.
void ResumeStream(const serving::ServingContext& context,
                  std::shared_ptr<http::Exchange> exchange) {
  http::HttpRequest& request = exchange->request();
  StatusOr<serving::StreamJournal::Entry> entry = FindStream(context, request);
  if (!entry.ok()) {
    exchange->SendError(serving::ToApiError(entry.status()));
    return;
  }
  const serving::Endpoint* const endpoint = FindEndpoint((*entry)->path);
  if (endpoint == nullptr) {
    return exchange->SendError(serving::ToApiError(serving::WithCode(
        NotFound("no endpoint at ", (*entry)->path, " goes on with a stream"),
        "stream_not_found")));
  }
  if (request.method == "HEAD") return exchange->Send(http::SseHead());
  if (!exchange->TakeBody((*entry)->body)) {
    exchange->SendError(serving::ToApiError(
        Unavailable("Too many large requests are being read at once")));
    return;
  }
  if (request.Header(serving::kLastEventIdHeader).empty()) {
    // The first value counts: an empty one goes.
    std::erase_if(request.headers, [](const auto& header) {
      return header.first == serving::kLastEventIdHeader;
    });
    request.headers.emplace_back(serving::kLastEventIdHeader,
                                 (*entry)->first_event_id);
  }
  endpoint->run(context, std::move(exchange));
}

}  // namespace

void AddStreamsHandler(http::Router& router,
                       const serving::ServingContext& context) {
  router.Add("GET", "/v1/streams/*",
             [context](std::shared_ptr<http::Exchange> exchange) {
               ResumeStream(context, std::move(exchange));
             });
}

}  // namespace sluice::gateway
