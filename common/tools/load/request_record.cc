#include "common/tools/load/request_record.h"

#include <algorithm>

namespace sluice::load {

const char* OutcomeName(Outcome outcome) {
  constexpr const char* kNames[] = {"done",    "refused", "http_error",
                                    "connect", "broken",  "error_event",
                                    "timeout", "empty",   "cancelled"};
  return kNames[static_cast<size_t>(outcome)];
}

double RequestRecord::TimeToFirstToken() const {
  return arrivals.empty() ? 0 : Seconds(arrivals.front().at - scheduled);
}

double RequestRecord::TimePerOutputToken() const {
  if (arrivals.size() < 2 || output_tokens <= arrivals.front().tokens) return 0;
  // Tokens that came with the first one have no time of their own.
  return Seconds(arrivals.back().at - arrivals.front().at) /
         static_cast<double>(output_tokens - arrivals.front().tokens);
}

std::vector<double> RequestRecord::InterTokenLatencies() const {
  std::vector<double> gaps;
  for (size_t i = 1; i < arrivals.size(); ++i) {
    const double gap = Seconds(arrivals[i].at - arrivals[i - 1].at);
    gaps.insert(gaps.end(), static_cast<size_t>(arrivals[i].tokens),
                gap / arrivals[i].tokens);
  }
  return gaps;
}

double RequestRecord::LongestGap() const {
  Duration longest{0};
  for (size_t i = 1; i < arrivals.size(); ++i) {
    longest = std::max(longest, arrivals[i].at - arrivals[i - 1].at);
  }
  return Seconds(longest);
}

}  // namespace sluice::load
