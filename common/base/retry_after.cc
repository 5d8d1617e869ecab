#include "common/base/retry_after.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "absl/strings/cord.h"

namespace sluice {
namespace {

constexpr char kPayload[] = "sluice/retry-after-seconds";
constexpr double kMaxSeconds = 86400;

}  // namespace

Status WithRetryAfter(Status status, Duration wait) {
  const double seconds = std::clamp(std::ceil(Seconds(wait)), 1.0, kMaxSeconds);
  status.SetPayload(kPayload,
                    absl::Cord(std::to_string(static_cast<int>(seconds))));
  return status;
}

std::optional<int> RetryAfterSeconds(const Status& status) {
  const auto payload = status.GetPayload(kPayload);
  if (!payload.has_value()) return std::nullopt;
  const std::string text(*payload);
  int seconds = 0;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return std::max(seconds, 1);
}

}  // namespace sluice
