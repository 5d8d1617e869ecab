#include "common/base/log.h"

#include <atomic>
#include <exception>
#include <string>

#include "common/base/log_line.h"
#include "common/base/log_writer.h"

namespace sluice {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};

// Memory may be what is short: then the line is one of those dropped.
void Append(LogLevel level, std::string_view message,
            const std::vector<LogField>& fields) {
  LogWriter& writer = LogWriter::Get();
  try {
    writer.Append(FormatLogLine(level, message, fields));
  } catch (const std::exception&) {
    writer.Drop();
  }
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level = level; }
bool IsLogged(LogLevel level) {
  return level >= g_level.load(std::memory_order_relaxed);
}

Status SetUpLog(std::string_view format, std::string_view level) {
  if (format != "text" && format != "json") {
    return InvalidArgument("--log-format must be text or json, got '", format,
                           "'");
  }
  static constexpr std::string_view kLevels[] = {"debug", "info", "warning",
                                                 "error"};
  for (int i = 0; i < 4; ++i) {
    if (level != kLevels[i]) continue;
    SetLogFormat(format == "json" ? LogFormat::kJson : LogFormat::kText);
    SetLogLevel(static_cast<LogLevel>(i));
    return OkStatus();
  }
  return InvalidArgument(
      "--log-level must be debug, info, warning or error, got '", level, "'");
}

void Log(LogLevel level, std::string_view message) {
  if (!IsLogged(level)) return;
  Append(level, message, {});
}

void LogFields(std::string_view message, const std::vector<LogField>& fields) {
  Append(LogLevel::kInfo, message, fields);
}

uint64_t LogLinesDropped() { return LogWriter::Get().dropped(); }

bool FlushLog(Duration wait) { return LogWriter::Get().Flush(wait); }

}  // namespace sluice
