#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <mutex>
#include <string_view>

#include "common/base/log_limit.h"

namespace sluice::rpc {
namespace {

constexpr size_t kMaxLine = 300;  // bytes of one message of gRPC

void OnGrpcLine(gpr_log_func_args* args) {
  static LogLimit& limit = *new LogLimit(10, std::chrono::seconds(1));
  const LogLevel level = args->severity == GPR_LOG_SEVERITY_ERROR
                             ? LogLevel::kWarning
                             : LogLevel::kDebug;
  limit.Write(level,
              "gRPC: ", std::string_view(args->message).substr(0, kMaxLine));
}

}  // namespace

void TakeGrpcLog() {
  static std::once_flag once;
  std::call_once(once, [] { gpr_set_log_function(OnGrpcLine); });
}

}  // namespace sluice::rpc
