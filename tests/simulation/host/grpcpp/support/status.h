#ifndef SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_STATUS_H_
#define SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_STATUS_H_

#include <string>
#include <utility>

namespace grpc {

enum StatusCode {
  OK = 0,
  CANCELLED = 1,
  DEADLINE_EXCEEDED = 4,
  UNIMPLEMENTED = 12,
  UNAVAILABLE = 14,
};

class Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message, std::string details = "")
      : code_(code),
        message_(std::move(message)),
        details_(std::move(details)) {}
  static const Status& OK;
  bool ok() const { return code_ == StatusCode::OK; }
  StatusCode error_code() const { return code_; }
  std::string error_message() const { return message_; }
  std::string error_details() const { return details_; }

 private:
  StatusCode code_ = StatusCode::OK;
  std::string message_;
  std::string details_;
};

inline const Status kOkStatus;
inline const Status& Status::OK = kOkStatus;

}  // namespace grpc

#endif  // SLUICE_TESTS_SIMULATION_HOST_GRPCPP_SUPPORT_STATUS_H_
