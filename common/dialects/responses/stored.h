#ifndef SLUICE_COMMON_DIALECTS_RESPONSES_STORED_H_
#define SLUICE_COMMON_DIALECTS_RESPONSES_STORED_H_

#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/http/router.h"
#include "common/serving/answer_store.h"
#include "common/serving/context.h"

namespace sluice::responses {

// Returns the items of a response that is kept, its input and its output, for
// the request that goes on with it; their values count against `budget`.
// NOT_FOUND if the key has none of that id.
StatusOr<Json> ItemsBehind(serving::AnswerStore& store,
                           const std::string& tenant, std::string_view id,
                           JsonBudget& budget);

// Returns the text of previous_response_id in `body`; empty without it, or with
// a name or a value that has escapes. One pass over a body that has the name.
std::string_view PreviousIdOf(std::string_view body);

// Returns the bytes of the response that a request goes on with, which are read
// beside its body; 0: none is kept.
size_t BytesBehind(const serving::ServingContext& context,
                   const http::HttpRequest& request);

// Adds GET and DELETE of /v1/responses/{id}, POST of its /cancel, GET of its
// /input_items.
void AddStoredHandlers(http::Router& router,
                       const serving::ServingContext& context);

}  // namespace sluice::responses

#endif  // SLUICE_COMMON_DIALECTS_RESPONSES_STORED_H_
