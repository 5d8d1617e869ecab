#ifndef SLUICE_COMMON_SERVING_REQUEST_BODY_H_
#define SLUICE_COMMON_SERVING_REQUEST_BODY_H_

#include <span>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/serving/fields.h"
#include "common/serving/request.h"

namespace sluice::serving {

using RoundedNumbers = std::vector<RoundedNumber>;

// Returns the object of a body, whose values count against `budget`. The
// numbers that doubles do not keep come into `rounded`. INVALID_ARGUMENT for
// malformed JSON, or JSON that is no object or above the limits.
StatusOr<Json> ParseBody(std::string_view body, JsonBudget& budget,
                         RoundedNumbers* rounded = nullptr);

// INVALID_ARGUMENT (unknown_parameter) for the first member of `body` that is
// not among `known`.
Status RefuseOthers(const Json& body, std::span<const std::string_view> known);

// A schema's numbers hold an answer to the digit, or the request is refused: a
// schema of `fields.grammar` gets the digits that it has in `body`. A tool that
// is not strict holds nothing. `tools` null: there are none; else tool i comes
// from member "tools[i]" of the body. Errors stay in `in`.
void HoldRounded(std::string_view body, FieldReader& in,
                 const RoundedNumbers& rounded, GenerationFields& fields,
                 const ToolFields* tools);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_REQUEST_BODY_H_
