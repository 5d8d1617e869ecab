#ifndef SLUICE_COMMON_DIALECTS_RESPONSES_STORED_H_
#define SLUICE_COMMON_DIALECTS_RESPONSES_STORED_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

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

// Returns the ids of the item references in `body`: of objects of at most 512
// bytes that have no object within and no escapes in the id. It may have ids of
// other objects, too. One pass over the body, and a look at the first 4096
// mentions of item_reference.
std::vector<std::string_view> ReferencedIds(std::string_view body);

// The items of responses that are kept, by their ids, for one request: what its
// item references stand for. One thread.
class ReferencedItems {
 public:
  // `store` and `request` outlive it.
  ReferencedItems(serving::AnswerStore& store, const http::HttpRequest& request)
      : store_(store), request_(request) {}

  // Returns the item `id` of a response's output, whose values count against
  // `budget`. NOT_FOUND if the key has none; INVALID_ARGUMENT for an id that
  // was asked for before, and for a response that has too many values.
  StatusOr<Json> Take(std::string_view id, JsonBudget& budget);

 private:
  // The items of a response that are not taken yet.
  using Output = std::map<std::string, Json, std::less<>>;

  serving::AnswerStore& store_;
  const http::HttpRequest& request_;
  std::optional<std::set<std::string_view>> foreseen_;
  std::map<std::string, Output, std::less<>> outputs_;  // by response
};

// Returns the bytes of the responses that a request goes on with or refers to,
// which are read beside its body; 0: none is kept.
size_t BytesBehind(const serving::ServingContext& context,
                   const http::HttpRequest& request);

// Adds GET and DELETE of /v1/responses/{id}, POST of its /cancel, GET of its
// /input_items.
void AddStoredHandlers(http::Router& router,
                       const serving::ServingContext& context);

}  // namespace sluice::responses

#endif  // SLUICE_COMMON_DIALECTS_RESPONSES_STORED_H_
