#ifndef SLUICE_COMMON_WIRE_CHECKS_H_
#define SLUICE_COMMON_WIRE_CHECKS_H_

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/wire/limits.h"

// The checks of single fields in conversions from proto.
namespace sluice::wire {

inline Status CheckRange(const char* what, int64_t value, int64_t low,
                         int64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(what, " must be between ", low, " and ", high,
                         ", got ", value);
}

inline Status CheckName(const char* what, const std::string& value) {
  if (!value.empty() && value.size() <= kMaxNameBytes) return OkStatus();
  return InvalidArgument(what, " has ", value.size(), " bytes, limit [1, ",
                         kMaxNameBytes, "]");
}

}  // namespace sluice::wire

#endif  // SLUICE_COMMON_WIRE_CHECKS_H_
