#ifndef SLUICE_COMMON_OPENAI_STOP_MATCHER_H_
#define SLUICE_COMMON_OPENAI_STOP_MATCHER_H_

#include <string>
#include <string_view>
#include <vector>

namespace sluice::gateway {

// Looks for stop strings in a text that comes in pieces. What may still turn
// out to begin one is held back, so nothing of a stop string is ever shown,
// or, where it is to be shown, nothing behind it.
// The outcome does not depend on how the text is cut: the stop string that
// ends first wins, of those the one that begins first.
class StopMatcher {
 public:
  // `stops`: none empty. `include`: the one that ends the text is shown.
  explicit StopMatcher(std::vector<std::string> stops, bool include = false)
      : stops_(std::move(stops)), include_(include) {}

  // The text that may be shown now. After a match nothing more comes.
  std::string Push(std::string_view text);
  // The rest, when the text ends without a match.
  std::string Finish();
  bool matched() const { return matched_; }

 private:
  // Bytes at the end of `held_` that may begin a stop string.
  size_t PartialMatch() const;

  std::vector<std::string> stops_;
  const bool include_;
  std::string held_;
  bool matched_ = false;
};

}  // namespace sluice::gateway

#endif  // SLUICE_COMMON_OPENAI_STOP_MATCHER_H_
