#ifndef SLUICE_COMMON_DIALECTS_MESSAGES_TOOLS_H_
#define SLUICE_COMMON_DIALECTS_MESSAGES_TOOLS_H_

#include <functional>
#include <set>
#include <string>

#include "common/serving/fields.h"
#include "common/serving/request.h"

namespace sluice::messages {

struct Tools {
  serving::ToolFields fields;
  // Its `strict` is that of each entry of the body's `tools`, for
  // serving::HoldRounded.
  serving::ToolFields by_place;
};

// Reads tools and tool_choice. Left out are tools that Anthropic's servers run
// or whose schema they alone know, by their type, and tools with defer_loading
// that are neither in `named` nor chosen. Errors stay in `in`.
Tools ReadTools(serving::FieldReader& in,
                const std::set<std::string, std::less<>>& named);

}  // namespace sluice::messages

#endif  // SLUICE_COMMON_DIALECTS_MESSAGES_TOOLS_H_
