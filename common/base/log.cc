#include "common/base/log.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

namespace sluice {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};

void AppendEscaped(std::string& out, std::string_view text) {
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u >= 0x20 && u != 0x7f) {
      out.push_back(c);
    } else if (c == '\n') {
      out += "\\n";
    } else {
      char hex[8];
      std::snprintf(hex, sizeof(hex), "\\x%02x", u);
      out += hex;
    }
  }
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level = level; }

void Log(LogLevel level, std::string_view message) {
  if (level < g_level.load(std::memory_order_relaxed)) return;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  char stamp[128];
  std::snprintf(
      stamp, sizeof(stamp), "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %c ",
      utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
      utc.tm_sec, now.tv_nsec / 1000000, "DIWE"[static_cast<int>(level)]);
  std::string line = stamp;
  AppendEscaped(line, message);
  line.push_back('\n');
  // One write per line keeps the lines of several threads apart.
  [[maybe_unused]] const auto written =
      ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace sluice
