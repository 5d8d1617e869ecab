#ifndef SLUICE_COMMON_BASE_EXCEPTION_COUNTS_H_
#define SLUICE_COMMON_BASE_EXCEPTION_COUNTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/catch_exceptions.h"

namespace sluice {

// Counts an exception at the edge `where` ("http_handler"), for the whole
// process. `where` comes from a small fixed set: it is a metric's label. The
// first 31 bytes and the first 32 edges are kept; later edges count as "other".
// Allocates nothing. Any thread.
void CountException(std::string_view where) noexcept;

// The number of exceptions at each edge so far, in order of each edge's first.
std::vector<std::pair<std::string, uint64_t>> ExceptionCounts();

// The number of exceptions at the edge `where` so far.
uint64_t ExceptionsAt(std::string_view where);

// CatchExceptions, which counts an exception under `where`.
template <typename Work>
Status CatchAndCount(std::string_view where, Work&& work) {
  Status done = CatchExceptions(where, std::forward<Work>(work));
  if (!done.ok()) CountException(where);
  return done;
}

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_EXCEPTION_COUNTS_H_
