#ifndef SLUICE_COMMON_SERVICE_SERVICE_MAIN_H_
#define SLUICE_COMMON_SERVICE_SERVICE_MAIN_H_

#include <absl/flags/usage.h>

#include <string>

#include "common/base/catch_exceptions.h"
#include "common/base/log.h"
#include "common/service/service_flags.h"
#include "common/service/service_process.h"

namespace sluice {

// The main function of a service ("gateway", "stage", "expert"): sets the flags
// (ParseServiceFlags) and the limit of descriptors, and runs `run(signals)`,
// whose error or exception it logs. Returns the process's exit code, 0 or 1.
template <typename Run>
int ServiceMain(int argc, char** argv, const char* service, const char* usage,
                Run run) {
  absl::SetProgramUsageMessage(usage);
  Status status = ParseServiceFlags(service, argc, argv);
  RaiseFileLimit();
  const Status ran = CatchExceptions(service, [&] {
    if (status.ok()) status = run(BlockSignals());
  });
  if (!ran.ok()) status = ran;
  if (status.ok()) return 0;
  LogError(Message(status));
  return 1;
}

// Serves until one of `signals` or AskToEnd comes, then drains for `drain_time`
// at the most and stops. Returns an error if the address cannot be written to
// `port_file`, if `server` cannot load, or after AskToEnd.
template <typename Server>
Status ServeAndDrain(Server& server, const sigset_t& signals,
                     const std::string& port_file, Duration drain_time) {
  LogInfo("listening on ", server.address());
  SLUICE_RETURN_IF_ERROR(WritePortFile(port_file, server.address()));
  SLUICE_RETURN_IF_ERROR(AwaitLoad(signals, [&server](TimePoint deadline) {
    return server.WaitLoaded(deadline);
  }));
  const Status why = AwaitSignal(signals);
  UnblockSignals(signals);
  server.Drain(Clock::now() + drain_time);
  server.Stop();
  LogInfo("stopped");
  return why;
}

}  // namespace sluice

#endif  // SLUICE_COMMON_SERVICE_SERVICE_MAIN_H_
