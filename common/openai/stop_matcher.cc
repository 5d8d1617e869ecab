#include "common/openai/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace sluice::gateway {

std::string StopMatcher::Push(std::string_view text) {
  if (matched_) return "";
  held_ += text;
  size_t begin = std::string::npos;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t found = held_.find(stop);
    if (found == std::string::npos) continue;
    const size_t found_end = found + stop.size();
    if (found_end < end || (found_end == end && found < begin)) {
      begin = found;
      end = found_end;
    }
  }
  if (end != std::string::npos) {
    matched_ = true;
    held_.resize(include_ ? end : begin);
    return std::exchange(held_, "");
  }
  const size_t shown = held_.size() - PartialMatch();
  std::string out = held_.substr(0, shown);
  held_.erase(0, shown);
  return out;
}

std::string StopMatcher::Finish() {
  return matched_ ? std::string() : std::exchange(held_, "");
}

size_t StopMatcher::PartialMatch() const {
  size_t longest = 0;
  const std::string_view held = held_;
  for (const std::string& stop : stops_) {
    size_t length = std::min(stop.size() - 1, held.size());
    while (length > longest && held.substr(held.size() - length) !=
                                   std::string_view(stop).substr(0, length)) {
      --length;
    }
    longest = std::max(longest, length);
  }
  return longest;
}

}  // namespace sluice::gateway
