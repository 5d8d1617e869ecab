#ifndef SLUICE_COMMON_BASE_SERVICE_MAIN_H_
#define SLUICE_COMMON_BASE_SERVICE_MAIN_H_

#include <absl/flags/parse.h>
#include <absl/flags/usage.h>

#include <string>

#include "common/base/flag_names.h"
#include "common/base/log.h"
#include "common/base/service_process.h"

namespace sluice {

// The main function of a service: parses flags and runs `run(signals)`, whose
// error it logs. Returns the process's exit code, 0 or 1.
template <typename Run>
int ServiceMain(int argc, char** argv, const char* usage, Run run) {
  absl::SetProgramUsageMessage(usage);
  AcceptDashesInFlags(argc, argv);
  if (const auto words = absl::ParseCommandLine(argc, argv); words.size() > 1) {
    LogError("unknown argument '", words[1], "'; see --help");
    return 1;
  }
  const Status status = run(BlockSignals());
  if (status.ok()) return 0;
  LogError(Message(status));
  return 1;
}

// Serves until one of `signals` comes, then drains for `drain_time` at the most
// and stops. Returns an error if the address cannot be written to `port_file`,
// or if `server` cannot load.
template <typename Server>
Status ServeAndDrain(Server& server, const sigset_t& signals,
                     const std::string& port_file, Duration drain_time) {
  LogInfo("listening on ", server.address());
  SLUICE_RETURN_IF_ERROR(WritePortFile(port_file, server.address()));
  SLUICE_RETURN_IF_ERROR(ServeUntilSignal(
      signals,
      [&server](TimePoint deadline) { return server.WaitLoaded(deadline); }));
  UnblockSignals(signals);
  server.Drain(Clock::now() + drain_time);
  server.Stop();
  LogInfo("stopped");
  return OkStatus();
}

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_SERVICE_MAIN_H_
