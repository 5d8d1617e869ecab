#include <cstdio>
#include <cstdlib>

#include "common/base/check.h"

namespace sluice {

// common/base/check.cc's without the log, which needs Abseil.
void CheckFailed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what);
  std::abort();
}

}  // namespace sluice
