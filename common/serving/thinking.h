#ifndef SLUICE_COMMON_SERVING_THINKING_H_
#define SLUICE_COMMON_SERVING_THINKING_H_

#include <optional>
#include <string>
#include <string_view>

#include "common/base/json_fwd.h"

namespace sluice::serving {

// The variables by which chat templates turn thinking on and off.
inline constexpr const char* kThinkingSwitches[] = {"enable_thinking",
                                                    "thinking"};

// Templates compare or print words, which hold no special token: 1 to
// kMaxWordBytes letters, digits, spaces, - and _.
bool IsWord(std::string_view text);

// Sets the template's variables for whether and how much the model thinks;
// nothing: as the model does by itself. `effort` is a word; a model that does
// not think has the effort "none". Switches that `arguments`, an object, has
// already stay.
void SetThinking(std::optional<bool> thinks,
                 const std::optional<std::string>& effort, Json& arguments);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_THINKING_H_
