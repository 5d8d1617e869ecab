#include "common/rpc/status.h"

namespace sluice::rpc {
namespace {
constexpr size_t kMaxMessage = 4096;
}  // namespace

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      Message(status).substr(0, kMaxMessage));
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  const int code = static_cast<int>(status.error_code());
  const bool known =
      code > 0 && code <= static_cast<int>(StatusCode::kUnauthenticated);
  return MakeStatus(
      known ? static_cast<StatusCode>(code) : StatusCode::kUnknown,
      status.error_message().substr(0, kMaxMessage));
}

}  // namespace sluice::rpc
