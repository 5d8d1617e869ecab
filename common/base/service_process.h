#ifndef SLUICE_COMMON_BASE_SERVICE_PROCESS_H_
#define SLUICE_COMMON_BASE_SERVICE_PROCESS_H_

#include <signal.h>

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace sluice {

// What the process of a service does around its server.

// Leaves SIGTERM and SIGINT to the main thread alone from now on; ignores
// SIGPIPE and SIGXFSZ. Call before any other thread starts.
sigset_t BlockSignals();

// Writes `address` into the file `path`, whole or not at all, so that no reader
// sees half an address. Does nothing for an empty `path`. UNAVAILABLE if it
// cannot.
Status WritePortFile(const std::string& path, const std::string& address);

// Returns when one of `signals` comes, or with the reason of a failed load.
// `wait_loaded` waits until its argument and returns the load's status,
// DEADLINE_EXCEEDED for not yet; a signal before the load ends the process at
// once.
Status ServeUntilSignal(
    const sigset_t& signals,
    const std::function<Status(TimePoint deadline)>& wait_loaded);

// Restores the default action: a second signal ends the process.
void UnblockSignals(const sigset_t& signals);

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_SERVICE_PROCESS_H_
