#ifndef SLUICE_COMMON_BASE_END_PROCESS_H_
#define SLUICE_COMMON_BASE_END_PROCESS_H_

#include <functional>
#include <string>

namespace sluice {

// The exit code of a process that cannot go on, and whose supervisor starts
// another: sysexits' EX_SOFTWARE.
inline constexpr int kToBeReplaced = 70;

// Logs `why`, calls `last` if it is set, and ends the process with
// kToBeReplaced; no destructor runs. From any thread. Another thread may hold
// the lock of the log or of the allocator for good, and `last` may not return:
// a signal ends the process after a few seconds then.
[[noreturn]] void EndToBeReplaced(const std::string& why,
                                  const std::function<void()>& last = {});

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_END_PROCESS_H_
