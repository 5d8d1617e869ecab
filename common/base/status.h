#ifndef SLUICE_COMMON_BASE_STATUS_H_
#define SLUICE_COMMON_BASE_STATUS_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/cat.h"

namespace sluice {

// The statuses that callers can act on. Messages name what, which, limit and
// value.
using absl::Status;
using absl::StatusCode;
using absl::StatusOr;

inline Status OkStatus() { return absl::OkStatus(); }

// Returns a status of `code` with the message Cat(parts...).
template <typename... Parts>
Status MakeStatus(StatusCode code, const Parts&... parts) {
  return Status(code, absl::string_view(Cat(parts...)));
}
template <typename... Parts>
Status InvalidArgument(const Parts&... parts) {
  return MakeStatus(StatusCode::kInvalidArgument, parts...);
}
template <typename... Parts>
Status NotFound(const Parts&... parts) {
  return MakeStatus(StatusCode::kNotFound, parts...);
}
template <typename... Parts>
Status FailedPrecondition(const Parts&... parts) {
  return MakeStatus(StatusCode::kFailedPrecondition, parts...);
}
template <typename... Parts>
Status ResourceExhausted(const Parts&... parts) {
  return MakeStatus(StatusCode::kResourceExhausted, parts...);
}
template <typename... Parts>
Status Unavailable(const Parts&... parts) {
  return MakeStatus(StatusCode::kUnavailable, parts...);
}
template <typename... Parts>
Status Unimplemented(const Parts&... parts) {
  return MakeStatus(StatusCode::kUnimplemented, parts...);
}
template <typename... Parts>
Status Internal(const Parts&... parts) {
  return MakeStatus(StatusCode::kInternal, parts...);
}
template <typename... Parts>
Status Cancelled(const Parts&... parts) {
  return MakeStatus(StatusCode::kCancelled, parts...);
}
template <typename... Parts>
Status DeadlineExceeded(const Parts&... parts) {
  return MakeStatus(StatusCode::kDeadlineExceeded, parts...);
}
template <typename... Parts>
Status Aborted(const Parts&... parts) {
  return MakeStatus(StatusCode::kAborted, parts...);
}
template <typename... Parts>
Status DataLoss(const Parts&... parts) {
  return MakeStatus(StatusCode::kDataLoss, parts...);
}

// Returns the message as a std::string.
inline std::string Message(const Status& status) {
  return std::string(status.message().data(), status.message().size());
}

// Returns `status` with "context: " before its message; OK stays OK.
template <typename... Parts>
Status Annotate(const Status& status, const Parts&... context) {
  if (status.ok()) return status;
  return MakeStatus(status.code(), context..., ": ", Message(status));
}

}  // namespace sluice

#define SLUICE_CONCAT_INNER_(a, b) a##b
#define SLUICE_CONCAT_(a, b) SLUICE_CONCAT_INNER_(a, b)

// Returns the status of `expr` from the enclosing function unless it is OK.
#define SLUICE_RETURN_IF_ERROR(expr)                                  \
  do {                                                                \
    if (::absl::Status sluice_status_ = (expr); !sluice_status_.ok()) \
      return sluice_status_;                                          \
  } while (false)

// SLUICE_ASSIGN_OR_RETURN(auto x, Make()): x, or the error is returned.
#define SLUICE_ASSIGN_OR_RETURN(lhs, expr) \
  SLUICE_ASSIGN_OR_RETURN_IMPL_(SLUICE_CONCAT_(sluice_or_, __LINE__), lhs, expr)
#define SLUICE_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return std::move(tmp).status();      \
  lhs = std::move(tmp).value()

#endif  // SLUICE_COMMON_BASE_STATUS_H_
