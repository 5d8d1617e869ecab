#include "common/serving/resumed_streams.h"

#include <memory>
#include <string>
#include <utility>

#include "common/base/cat.h"
#include "common/http/sse.h"
#include "common/serving/answer_start.h"
#include "common/serving/error.h"
#include "common/serving/stream_journal.h"

namespace sluice::serving {
namespace {

// Returns the request of the stream that `request` is about; from then on
// `request` is of that stream's dialect. NOT_FOUND; or INVALID_ARGUMENT for a
// Last-Event-ID that is another request's.
StatusOr<StreamJournal::Entry> FindStream(const ServingContext& context,
                                          http::HttpRequest& request) {
  StreamJournal* const streams = context.streams;
  if (streams == nullptr || !context.rules.event_ids) {
    return WithCode(NotFound("no streams are kept here, because events "
                             "have no ids (--no-event-ids)"),
                    "stream_not_found");
  }
  const std::string id = request.path.substr(kStreamsPath.size());
  SLUICE_ASSIGN_OR_RETURN(StreamJournal::Entry entry,
                          streams->Find(id, request.tenant));
  request.resumed_path = entry->path;
  const std::string_view last = request.Header(kLastEventIdHeader);
  if (last.empty()) return entry;
  SLUICE_ASSIGN_OR_RETURN(const EventId resumed, ParseEventId(last));
  if (resumed.origin.request_id == id) return entry;
  return EventIdError("is of request \"" + resumed.origin.request_id +
                      "\", the path names \"" + id + "\"");
}

// Answers as if the client had sent its request again.
void ResumeStream(std::span<const Dialect> dialects,
                  const ServingContext& context,
                  std::shared_ptr<http::Exchange> exchange) {
  http::HttpRequest& request = exchange->request();
  StatusOr<StreamJournal::Entry> entry = FindStream(context, request);
  if (!entry.ok()) {
    exchange->SendError(ToApiError(entry.status()));
    return;
  }
  const Endpoint* const endpoint = FindEndpoint(dialects, (*entry)->path);
  if (endpoint == nullptr) {
    return exchange->SendError(ToApiError(WithCode(
        NotFound("no endpoint at ", (*entry)->path, " goes on with a stream"),
        "stream_not_found")));
  }
  if (request.method == "HEAD") return exchange->Send(http::SseHead());
  if (!exchange->TakeBody((*entry)->body)) {
    exchange->SendError(ToApiError(
        Unavailable("Too many large requests are being read at once")));
    return;
  }
  if (request.Header(kLastEventIdHeader).empty()) {
    // The first value counts: an empty one goes.
    std::erase_if(request.headers, [](const auto& header) {
      return header.first == kLastEventIdHeader;
    });
    request.headers.emplace_back(kLastEventIdHeader, (*entry)->first_event_id);
  }
  endpoint->run(context, std::move(exchange));
}

}  // namespace

void AddStreamsHandler(std::span<const Dialect> dialects, http::Router& router,
                       const ServingContext& context) {
  router.Add("GET", Cat(kStreamsPath, "*"),
             [dialects, context](std::shared_ptr<http::Exchange> exchange) {
               ResumeStream(dialects, context, std::move(exchange));
             });
}

}  // namespace sluice::serving
