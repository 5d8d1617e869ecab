#ifndef SLUICE_COMMON_BASE_LOG_H_
#define SLUICE_COMMON_BASE_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace sluice {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

// Gives one line "2026-01-31T12:00:00.123Z I message" to the thread "log",
// which writes to stderr; as JSON {"ts":..,"level":"info","message":..}. Never
// blocks: while stderr takes nothing, up to 1 MiB of lines waits, and further
// lines are dropped and counted. Control characters in the message are escaped,
// so that no input can forge a line; a message is cut at 16 KiB. Safe from any
// thread. Prompts and completions are never logged.
void Log(LogLevel level, std::string_view message);

// One named figure of a line.
struct LogField {
  std::string_view name;  // [a-z_], of our own
  std::variant<std::string_view, int64_t, double> value;
};

// As Log, at level kInfo whatever level SetLogLevel chose: `message`, then
// name=value for each field, or the fields as members of the JSON object. A
// text with other characters than letters, digits and .:/-_+@, is quoted.
void LogFields(std::string_view message, const std::vector<LogField>& fields);

// Messages below `level` are left out; default kInfo.
void SetLogLevel(LogLevel level);
// Whether messages of `level` are written.
bool IsLogged(LogLevel level);
void SetLogFormat(LogFormat format);

// Applies the flags --log-format (text, json) and --log-level (debug, info,
// warning, error). INVALID_ARGUMENT, naming the flag, for another word.
Status SetUpLog(std::string_view format, std::string_view level);

// Returns the lines dropped since the process began. When stderr takes lines
// again, a line of the log says how many were dropped.
uint64_t LogLinesDropped();

// Waits at most `wait` until all earlier lines are written. Returns false if
// some are not. exit() calls it with 1 s.
bool FlushLog(Duration wait);

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
