#include "common/serving/thinking.h"

#include <algorithm>

#include "common/base/json.h"
#include "common/serving/request_limits.h"

namespace sluice::serving {

bool IsWord(std::string_view text) {
  const auto plain = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z') || c == ' ' || c == '-' || c == '_';
  };
  return !text.empty() && text.size() <= kMaxWordBytes &&
         std::all_of(text.begin(), text.end(), plain);
}

void SetThinking(std::optional<bool> thinks,
                 const std::optional<std::string>& effort, Json& arguments) {
  constexpr const char* kEffort = "reasoning_effort";
  if (thinks == false) {
    arguments[kEffort] = "none";
  } else if (effort) {
    arguments[kEffort] = *effort;
  }
  if (!thinks) return;
  for (const char* name : kThinkingSwitches) {
    if (!arguments.contains(name)) arguments[name] = *thinks;
  }
}

}  // namespace sluice::serving
