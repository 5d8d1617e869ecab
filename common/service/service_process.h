#ifndef SLUICE_COMMON_SERVICE_SERVICE_PROCESS_H_
#define SLUICE_COMMON_SERVICE_SERVICE_PROCESS_H_

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

// Raises the soft limit of descriptors, often 1024, to the hard one: every
// connection needs one, and strangers' do too.
void RaiseFileLimit();

// Writes `address` into the file `path`, whole or not at all, so that no reader
// sees half an address. Does nothing for an empty `path`. UNAVAILABLE if it
// cannot.
Status WritePortFile(const std::string& path, const std::string& address);

// Makes AwaitLoad and AwaitSignal end as at a signal, but with the error `why`,
// a string that lasts. Does nothing once AwaitSignal has returned. Any thread;
// does not block.
void AskToEnd(const char* why);

// Returns when the model is loaded, or the reason why it cannot be.
// `wait_loaded` waits until its argument and returns the load's status,
// DEADLINE_EXCEEDED for not yet. One of `signals` ends the process at once with
// exit code 0, AskToEnd with 1.
Status AwaitLoad(const sigset_t& signals,
                 const std::function<Status(TimePoint deadline)>& wait_loaded);

// Tells the service manager that the process is ready, waits for one of
// `signals` or AskToEnd, and tells that it stops. Meanwhile the manager's
// watchdog is told that the main thread runs, and `tidy`, unless empty, is
// called every 2 s. Returns UNAVAILABLE with the reason after AskToEnd.
Status AwaitSignal(const sigset_t& signals,
                   const std::function<void()>& tidy = nullptr);

// Restores the default action: a second signal ends the process.
void UnblockSignals(const sigset_t& signals);

}  // namespace sluice

#endif  // SLUICE_COMMON_SERVICE_SERVICE_PROCESS_H_
