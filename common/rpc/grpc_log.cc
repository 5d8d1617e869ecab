#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>
#include <mutex>
#include <string_view>

#include "common/base/log_limit.h"

namespace sluice::rpc {
namespace {

constexpr size_t kMaxLine = 300;  // bytes of one message of gRPC
// What gRPC says before it gives a listener up.
constexpr std::string_view kAcceptFailed = "Failed accept4: ";

std::atomic<bool> is_deaf{false};
std::atomic<void (*)()> on_deaf{nullptr};

void BecomeDeaf(std::string_view why) {
  if (is_deaf.exchange(true)) return;
  LogError("no connection is accepted any more: ", why);
  if (const auto handler = on_deaf.exchange(nullptr)) handler();
}

void OnGrpcLine(gpr_log_func_args* args) {
  const std::string_view message = args->message;
  if (message.starts_with(kAcceptFailed)) {
    return BecomeDeaf(message.substr(kAcceptFailed.size()));
  }
  static LogLimit& limit = *new LogLimit(10, std::chrono::seconds(1));
  const LogLevel level = args->severity == GPR_LOG_SEVERITY_ERROR
                             ? LogLevel::kWarning
                             : LogLevel::kDebug;
  limit.Write(level, "gRPC: ", message.substr(0, kMaxLine));
}

}  // namespace

void TakeGrpcLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_log_verbosity_init();  // from GRPC_VERBOSITY
    if (gpr_should_log(GPR_LOG_SEVERITY_ERROR) == 0) {
      gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);  // OnDeaf needs errors
    }
    gpr_set_log_function(OnGrpcLine);
  });
}

void OnDeaf(void (*handler)()) {
  on_deaf = handler;
  if (!is_deaf) return;
  // Whichever thread takes it calls it.
  if (const auto taken = on_deaf.exchange(nullptr)) taken();
}

bool IsDeaf() { return is_deaf; }

}  // namespace sluice::rpc
