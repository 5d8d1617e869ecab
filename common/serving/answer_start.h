#ifndef SLUICE_COMMON_SERVING_ANSWER_START_H_
#define SLUICE_COMMON_SERVING_ANSWER_START_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/http/message.h"
#include "common/serving/answer_format.h"
#include "common/serving/context.h"
#include "common/serving/event_id.h"
#include "common/serving/prepared_request.h"
#include "common/serving/request.h"

namespace sluice::serving {

// Where an answer starts: an answer is a function of the request, the origin
// and the model. Pure functions; any thread.

// Returns Unix time in seconds.
int64_t UnixSeconds();

inline constexpr std::string_view kLastEventIdHeader = "last-event-id";

struct AnswerStart {
  std::string_view endpoint;  // its path
  AnswerOrigin origin;
  std::optional<EventId> resumed;  // nothing: from its beginning
  uint64_t fingerprint = 0;        // of the request; by StartStream

  // Returns the seed of prompt `prompt`: the client's for all of them, else
  // one for each.
  uint64_t SeedOf(const GenerationFields& fields, size_t prompt) const;
  // Returns what the tool calls' ids begin with: `prefix`, 16 hexadecimal
  // digits, "_". The digits are the first of a SHA-256 of origin and
  // fingerprint: they tell neither, and differ from request to request.
  std::string CallIds(std::string_view prefix) const;
};

// Takes on the request id of the stream that `request` resumes by
// Last-Event-ID. INVALID_ARGUMENT for a malformed one.
Status TakeResumedId(http::HttpRequest& request);

// Returns the start of the answer to `request`: what its Last-Event-ID says, or
// a new one, with a seed if the client gave none. INVALID_ARGUMENT for a
// Last-Event-ID that is malformed, or for no stream.
StatusOr<AnswerStart> StartAnswer(const http::HttpRequest& request,
                                  std::string_view endpoint,
                                  const GenerationFields& fields);

// Sets the fingerprint in `start`, what the events' ids need in `info`, which
// has `num_choices`, and what the client has, and a stream's request for the
// journal, in `prepared`, which has its choices; and the timings in both, if
// the answer tells them. INVALID_ARGUMENT if the
// Last-Event-ID is another request's; UNAVAILABLE if that cannot be told before
// the first pipeline is up.
Status StartStream(const ServingContext& context,
                   const http::HttpRequest& request,
                   const GenerationFields& fields, AnswerStart& start,
                   PreparedRequest& prepared, AnswerInfo& info);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_ANSWER_START_H_
