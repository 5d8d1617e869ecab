#ifndef SLUICE_COMMON_BASE_LOG_H_
#define SLUICE_COMMON_BASE_LOG_H_

#include <string_view>

#include "common/base/cat.h"

namespace sluice {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Writes one line "2026-01-31T12:00:00.123Z I message" to stderr. Control
// characters in the message are escaped, so that no input can forge a line.
// Safe from any thread. Prompts and completions are never logged.
void Log(LogLevel level, std::string_view message);

// Messages below `level` are dropped; default kInfo.
void SetLogLevel(LogLevel level);

template <typename... Parts>
void LogInfo(const Parts&... parts) {
  Log(LogLevel::kInfo, Cat(parts...));
}
template <typename... Parts>
void LogWarning(const Parts&... parts) {
  Log(LogLevel::kWarning, Cat(parts...));
}
template <typename... Parts>
void LogError(const Parts&... parts) {
  Log(LogLevel::kError, Cat(parts...));
}

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_LOG_H_
