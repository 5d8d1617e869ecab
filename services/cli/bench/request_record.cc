#include "services/cli/bench/request_record.h"

#include <algorithm>

namespace sluice::cli {

const char* OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kDone:
      return "done";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kHttpError:
      return "http_error";
    case Outcome::kConnect:
      return "connect";
    case Outcome::kBroken:
      return "broken";
    case Outcome::kError:
      return "error_event";
    case Outcome::kTimeout:
      return "timeout";
    case Outcome::kEmpty:
      return "empty";
    case Outcome::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

double RequestRecord::TimeToFirstToken() const {
  return arrivals.empty() ? 0 : Seconds(arrivals.front().at - scheduled);
}

double RequestRecord::TimePerOutputToken() const {
  if (arrivals.size() < 2 || output_tokens <= arrivals.front().tokens) return 0;
  // Tokens that came with the first one had no time of their own.
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

}  // namespace sluice::cli
