// sluice-gateway: the OpenAI API over a pipeline of stages. See README.md.
#include <malloc.h>

#include "common/base/log.h"
#include "common/grammar/compile_server.h"
#include "common/service/service_main.h"
#include "services/gateway/gateway_options.h"

namespace sluice::gateway {
namespace {

// Maps large bodies, and unmaps freed ones: by default glibc raises its
// threshold after the first and keeps later ones.
void BoundHeap() {
  mallopt(M_MMAP_THRESHOLD, 256 << 10);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
  mallopt(M_ARENA_MAX, 4);
}

// Returns memory of parsed bodies to the system, which they leave in small
// pieces.
void TidyHeap() {
  constexpr size_t kKeptBytes = size_t{64} << 20;
  if (mallinfo2().fordblks > kKeptBytes) malloc_trim(0);
}

Status Run(const GatewayFlags& flags, const sigset_t& signals) {
  BoundHeap();
  SLUICE_ASSIGN_OR_RETURN(GatewayOptions options, Resolve(flags));
  const bool tls = !options.http_tls.certificate.empty();
  SLUICE_ASSIGN_OR_RETURN(const auto server,
                          GatewayServer::Start(std::move(options)));
  LogInfo("listening on ", tls ? "https" : "http", "://", server->address());
  SLUICE_RETURN_IF_ERROR(WritePortFile(flags.port_file, server->address()));
  const Status why = AwaitSignal(signals, [&server] {
    server->Tidy();
    TidyHeap();
  });
  UnblockSignals(signals);
  server->Drain(Clock::now() + flags.drain_timeout);
  server->Stop();
  LogInfo("stopped");
  return why;
}

}  // namespace
}  // namespace sluice::gateway

int main(int argc, char** argv) {
  if (sluice::IsCompileProcess(argc, argv)) return sluice::RunCompileProcess();
  sluice::gateway::GatewayFlags flags;
  return sluice::ServiceMain(
      argc, argv,
      {"gateway", "serves the OpenAI API over a pipeline of stages",
       "sluice-gateway --model PATH --stages 127.0.0.1:7001,127.0.0.1:7002",
       RowsOf(flags)},
      [&flags](const sigset_t& signals) {
        return sluice::gateway::Run(flags, signals);
      });
}
