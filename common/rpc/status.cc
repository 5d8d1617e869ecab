#include "common/rpc/status.h"

#include <utility>

#include "absl/strings/cord.h"

namespace sluice::rpc {
namespace {
constexpr size_t kMaxMessage = 4096;
constexpr size_t kMaxDetails = 1024;
constexpr char kDetails[] = "grpc-status-details-bin";
}  // namespace

Status WithDetails(Status status, const std::string& details) {
  status.SetPayload(kDetails, absl::Cord(details));
  return status;
}

std::string DetailsOf(const Status& status) {
  const auto details = status.GetPayload(kDetails);
  return details.has_value() ? std::string(*details) : std::string();
}

bool IsConnectionRefused(const Status& status) {
  const std::string words = Message(status);
  const auto has = [&words](const char* text) {
    return words.find(text) != std::string::npos;
  };
  // The latter: of a socket file.
  return status.code() == StatusCode::kUnavailable &&
         has("ailed to connect to ") &&
         (has("Connection refused") || has("No such file or directory"));
}

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string details = DetailsOf(status);
  if (details.size() > kMaxDetails) details.clear();
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      Message(status).substr(0, kMaxMessage), details);
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  const int code = static_cast<int>(status.error_code());
  const bool known =
      code > 0 && code <= static_cast<int>(StatusCode::kUnauthenticated);
  Status from =
      MakeStatus(known ? static_cast<StatusCode>(code) : StatusCode::kUnknown,
                 status.error_message().substr(0, kMaxMessage));
  const std::string details = status.error_details();
  if (details.empty() || details.size() > kMaxDetails) return from;
  return WithDetails(std::move(from), details);
}

}  // namespace sluice::rpc
