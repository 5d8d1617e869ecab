#ifndef SLUICE_COMMON_DIALECTS_RESPONSES_REQUEST_H_
#define SLUICE_COMMON_DIALECTS_RESPONSES_REQUEST_H_

#include <functional>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/dialects/responses/tool_fields.h"
#include "common/serving/request.h"

namespace sluice::responses {

struct ResponsesRequest {
  serving::ChatRequest chat;
  ToolNames names;
  // The members of every answer that the request alone decides.
  Json echo;
  bool tells_summary = false;  // reasoning is told as a summary
  bool store = false;          // the client lets the answer be kept
  // The items that the answer is about, an array: those of the responses
  // before, and the request's own. Null where no response is kept.
  Json items;
};

// What reading a request takes from its server.
struct ReadOptions {
  int vocab_size = 0;   // bounds token ids
  bool strict = false;  // refuses unknown fields instead of ignoring them
  // Returns the items of the response with an id, its input and its output,
  // whose values count against `budget`; NOT_FOUND if there is none,
  // INVALID_ARGUMENT if they cannot be read; null: no response is kept.
  std::function<StatusOr<Json>(std::string_view id, JsonBudget& budget)>
      previous = nullptr;
  // Returns the item that an item reference names, whose values count against
  // `budget`; NOT_FOUND if there is none, INVALID_ARGUMENT if it cannot be
  // read; null: no response is kept.
  std::function<StatusOr<Json>(std::string_view id, JsonBudget& budget)> item =
      nullptr;
};

// Parses a body of POST /v1/responses. INVALID_ARGUMENT, with the field as
// param, for malformed JSON, wrong types, values out of range, and fields whose
// meaning another field has here; null counts as absent.
StatusOr<ResponsesRequest> ParseRequest(std::string_view body,
                                        const ReadOptions& options);

// Whether an answer to `body` needs no grammar; see serving::IsPlainBody.
bool IsPlainBody(std::string_view body);

}  // namespace sluice::responses

#endif  // SLUICE_COMMON_DIALECTS_RESPONSES_REQUEST_H_
