#ifndef SLUICE_COMMON_BASE_CHECK_H_
#define SLUICE_COMMON_BASE_CHECK_H_

#include <string_view>

namespace sluice {

// Prints "file:line: check failed: what" and aborts. For our own bugs only:
// input from outside gets a Status, never a CHECK.
[[noreturn]] void CheckFailed(const char* file, int line, const char* what);

}  // namespace sluice

#define SLUICE_CHECK(condition)                              \
  do {                                                       \
    if (!(condition)) [[unlikely]]                           \
      ::sluice::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#ifdef NDEBUG
#define SLUICE_DCHECK(condition) \
  do {                           \
    (void)sizeof(condition);     \
  } while (false)
#else
#define SLUICE_DCHECK(condition) SLUICE_CHECK(condition)
#endif

#endif  // SLUICE_COMMON_BASE_CHECK_H_
