#ifndef SLUICE_COMMON_BASE_SERVICE_PROCESS_H_
#define SLUICE_COMMON_BASE_SERVICE_PROCESS_H_

#include <signal.h>

#include <functional>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace sluice {

// What the process of a service does around its server.

// SIGTERM and SIGINT, from now on taken by the main thread alone; SIGPIPE is
// ignored. Call before any other thread starts.
sigset_t BlockSignals();

// Writes `address` into the file `path`, whole or not at all: a reader never
// sees half an address. Nothing if `path` is empty. Unavailable if it cannot.
Status WritePortFile(const std::string& path, const std::string& address);

// Returns when one of `signals` came, or with the reason why nothing could be
// loaded. `wait_loaded` waits until then and says what came of it,
// DeadlineExceeded for not yet; a signal before that ends the process at once.
Status ServeUntilSignal(
    const sigset_t& signals,
    const std::function<Status(TimePoint deadline)>& wait_loaded);

// The default action again: a second signal ends the process.
void UnblockSignals(const sigset_t& signals);

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_SERVICE_PROCESS_H_
