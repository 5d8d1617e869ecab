#ifndef SLUICE_COMMON_DIALECTS_RESPONSES_INPUT_ITEMS_H_
#define SLUICE_COMMON_DIALECTS_RESPONSES_INPUT_ITEMS_H_

#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/status.h"

namespace sluice::responses {

// Returns the messages of a ChatRequest for the items `before` and `input`,
// a text of the user or an array of items, behind `instructions` (empty: none).
// Reasoning, text and calls of one turn are one message;
// instructions and developers before the first turn are one, too. Pictures
// become serving::kImageNote; ids of items are ignored, and items of unknown
// types left out. The arguments of calls count against `budget`.
// INVALID_ARGUMENT names the item.
StatusOr<Json> MessagesOf(const Json& before, const Json& input,
                          const std::string& instructions, JsonBudget& budget);

}  // namespace sluice::responses

#endif  // SLUICE_COMMON_DIALECTS_RESPONSES_INPUT_ITEMS_H_
