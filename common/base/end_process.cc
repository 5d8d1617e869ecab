#include "common/base/end_process.h"

#include <signal.h>
#include <unistd.h>

#include "common/base/log.h"

namespace sluice {
namespace {

// How long the last words and `last` may take.
constexpr unsigned kLastSeconds = 2;

}  // namespace

void EndToBeReplaced(const std::string& why,
                     const std::function<void()>& last) {
  ::signal(SIGALRM, [](int) { _exit(kToBeReplaced); });
  ::alarm(kLastSeconds);
  LogError(why, ": this process ends");
  FlushLog(std::chrono::seconds(1));  // _exit leaves waiting lines out
  if (last) last();
  _exit(kToBeReplaced);  // threads that stand still cannot be joined
}

}  // namespace sluice
