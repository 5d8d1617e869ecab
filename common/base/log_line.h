#ifndef SLUICE_COMMON_BASE_LOG_LINE_H_
#define SLUICE_COMMON_BASE_LOG_LINE_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/log.h"

namespace sluice {

// Returns one line of the log with the present time and its '\n', in the format
// of Log and LogFields that SetLogFormat chose.
std::string FormatLogLine(LogLevel level, std::string_view message,
                          const std::vector<LogField>& fields = {});

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_LOG_LINE_H_
