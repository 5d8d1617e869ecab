#include "common/base/check.h"

#include <cstdlib>

#include "common/base/log.h"

namespace sluice {
namespace {

constexpr auto kFlushAtCheck = std::chrono::milliseconds(500);

}  // namespace

void CheckFailed(const char* file, int line, const char* what) {
  FlushLog(kFlushAtCheck);  // makes room for the last line
  LogError(file, ":", line, ": check failed: ", what);
  FlushLog(kFlushAtCheck);
  std::abort();
}

}  // namespace sluice
