#ifndef SLUICE_COMMON_SERVICE_SERVICE_MAIN_H_
#define SLUICE_COMMON_SERVICE_SERVICE_MAIN_H_

#include <signal.h>

#include <functional>
#include <string>

#include "common/base/log.h"
#include "common/service/service_process.h"
#include "common/service/service_program.h"

namespace sluice {

// The main function of a service: sets the options' variables (ReadOptions) and
// the limit of descriptors, and runs `run(signals)`, whose error or exception
// it logs. Adds the options that every service has: of the log, --config and
// --print. --help, --version and --print write a text instead. Returns the
// process's exit code, 0 or 1.
int ServiceMain(int argc, char** argv, ServiceProgram program,
                const std::function<Status(const sigset_t& signals)>& run);

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
