#include "common/metrics/code_label.h"

#include <iterator>

namespace sluice::metrics {

std::string CodeLabel(StatusCode code) {
  static constexpr const char* kNames[] = {"OK",
                                           "Canceled",
                                           "Unknown",
                                           "InvalidArgument",
                                           "DeadlineExceeded",
                                           "NotFound",
                                           "AlreadyExists",
                                           "PermissionDenied",
                                           "ResourceExhausted",
                                           "FailedPrecondition",
                                           "Aborted",
                                           "OutOfRange",
                                           "Unimplemented",
                                           "Internal",
                                           "Unavailable",
                                           "DataLoss",
                                           "Unauthenticated"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "Unknown";
}

}  // namespace sluice::metrics
