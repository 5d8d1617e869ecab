#include <memory>
#include <string>
#include <utility>

#include "common/http/error_answer.h"
#include "common/http/sse.h"
#include "common/openai/error.h"
#include "services/gateway/answer_start.h"
#include "services/gateway/handlers/handlers.h"
#include "services/gateway/stream_journal.h"

namespace sluice::gateway {
namespace {

constexpr std::string_view kStreamsPath = "/v1/streams/";

// Returns the request of the stream that `request` is about. NOT_FOUND; or
// INVALID_ARGUMENT for a Last-Event-ID that is another request's.
StatusOr<StreamJournal::Entry> FindStream(const HandlerContext& context,
                                          const http::HttpRequest& request) {
  StreamJournal* const streams = context.streams;
  if (streams == nullptr || !context.rules.event_ids) {
    return openai::WithCode(NotFound("no streams are kept here, because events "
                                     "have no ids (--no-event-ids)"),
                            "stream_not_found");
  }
  const std::string id = request.path.substr(kStreamsPath.size());
  SLUICE_ASSIGN_OR_RETURN(StreamJournal::Entry entry,
                          streams->Find(id, request.tenant));
  const std::string_view last = request.Header(kLastEventIdHeader);
  if (last.empty()) return entry;
  SLUICE_ASSIGN_OR_RETURN(const openai::EventId resumed,
                          openai::ParseEventId(last));
  if (resumed.origin.request_id == id) return entry;
  return openai::EventIdError("is of request \"" + resumed.origin.request_id +
                              "\", the path names \"" + id + "\"");
}

// Answers as if the client had sent its request again.
void ResumeStream(const HandlerContext& context,
                  std::shared_ptr<http::Exchange> exchange) {
  http::HttpRequest& request = exchange->request();
  StatusOr<StreamJournal::Entry> entry = FindStream(context, request);
  if (!entry.ok()) {
    exchange->Send(http::ErrorResponse(openai::ToApiError(entry.status())));
    return;
  }
  if (request.method == "HEAD") return exchange->Send(http::SseHead());
  if (!exchange->TakeBody((*entry)->body)) {
    exchange->Send(http::ErrorResponse(openai::ToApiError(
        Unavailable("Too many large requests are being read at once"))));
    return;
  }
  if (request.Header(kLastEventIdHeader).empty()) {
    // The first value counts: an empty one goes.
    std::erase_if(request.headers, [](const auto& header) {
      return header.first == kLastEventIdHeader;
    });
    request.headers.emplace_back(kLastEventIdHeader, (*entry)->first_event_id);
  }
  if ((*entry)->path == kChatPath) return RunChat(context, std::move(exchange));
  RunCompletion(context, std::move(exchange));
}

}  // namespace

void AddStreamsHandler(http::Router& router, const HandlerContext& context) {
  router.Add("GET", "/v1/streams/*",
             [context](std::shared_ptr<http::Exchange> exchange) {
               ResumeStream(context, std::move(exchange));
             });
}

}  // namespace sluice::gateway
