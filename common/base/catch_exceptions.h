#ifndef SLUICE_COMMON_BASE_CATCH_EXCEPTIONS_H_
#define SLUICE_COMMON_BASE_CATCH_EXCEPTIONS_H_

#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "common/base/status.h"

namespace sluice {

namespace internal {

// Made while the process starts: a copy of it takes no memory.
inline const Status& OutOfMemory() {
  static const Status* const status = new Status(Unavailable("out of memory"));
  return *status;
}
inline const Status& out_of_memory = OutOfMemory();

// Returns a status for the exception that is being handled.
inline Status StatusOfException(std::string_view where) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Unavailable(where, ": out of memory");
  } catch (const std::length_error&) {
    return Unavailable(where, ": out of memory (a length beyond all limits)");
  } catch (const std::exception& error) {
    return Internal(where, ": ", error.what());
  } catch (...) {
    return Internal(where, ": an exception of an unknown type");
  }
}

}  // namespace internal

// Runs `work()` at the edge of a job, a handler or a posted event, where one
// request's exception must not end the process. Returns OK if `work` returns,
// UNAVAILABLE if memory was short (std::bad_alloc, std::length_error: the same
// request may succeed later), INTERNAL with the exception's words otherwise.
// `where` names the edge in the message, unless there is no memory for one.
template <typename Work>
Status CatchExceptions(std::string_view where, Work&& work) {
  try {
    std::forward<Work>(work)();
    return OkStatus();
  } catch (...) {
    try {
      return internal::StatusOfException(where);
    } catch (...) {
      return internal::OutOfMemory();
    }
  }
}

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_CATCH_EXCEPTIONS_H_
