#include "common/base/log_line.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>

#include "common/base/json.h"

namespace sluice {
namespace {

// Of one text: longer ones come from peers, and say no more for it.
constexpr size_t kMaxTextBytes = size_t{16} << 10;

std::atomic<LogFormat> g_format{LogFormat::kText};

std::string TimeStamp() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  char stamp[128];
  std::snprintf(stamp, sizeof(stamp), "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ",
                utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour,
                utc.tm_min, utc.tm_sec, now.tv_nsec / 1000000);
  return stamp;
}

std::string_view LevelName(LogLevel level) {
  static constexpr std::string_view kNames[] = {"debug", "info", "warning",
                                                "error"};
  return kNames[static_cast<int>(level)];
}

std::string Cut(std::string_view text) {
  if (text.size() <= kMaxTextBytes) return std::string(text);
  return std::string(text.substr(0, kMaxTextBytes)) + "...";
}

void AppendEscaped(std::string& out, std::string_view text, bool quoted) {
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (quoted && (c == '"' || c == '\\')) {
      out.push_back('\\');
      out.push_back(c);
    } else if (u >= 0x20 && u != 0x7f) {
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

bool IsPlain(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') ||
           std::string_view(".:/-_+@,").find(c) != std::string_view::npos;
  });
}

void AppendField(std::string& out, const LogField& field) {
  out += Cat(" ", field.name, "=");
  if (const auto* text = std::get_if<std::string_view>(&field.value)) {
    const bool plain = IsPlain(*text);
    if (!plain) out.push_back('"');
    AppendEscaped(out, Cut(*text), !plain);
    if (!plain) out.push_back('"');
  } else if (const auto* whole = std::get_if<int64_t>(&field.value)) {
    out += Cat(*whole);
  } else {
    out += Cat(std::get<double>(field.value));
  }
}

std::string JsonLine(LogLevel level, std::string_view message,
                     const std::vector<LogField>& fields) {
  Json line;
  line["ts"] = TimeStamp();
  line["level"] = std::string(LevelName(level));
  line["message"] = Cut(message);
  for (const LogField& field : fields) {
    Json& value = line[std::string(field.name)];
    if (const auto* text = std::get_if<std::string_view>(&field.value)) {
      value = Cut(*text);
    } else if (const auto* whole = std::get_if<int64_t>(&field.value)) {
      value = *whole;
    } else {
      value = std::get<double>(field.value);
    }
  }
  // ASCII alone: whatever shows the log takes it for no control character.
  return line.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace

void SetLogFormat(LogFormat format) { g_format = format; }

std::string FormatLogLine(LogLevel level, std::string_view message,
                          const std::vector<LogField>& fields) {
  if (g_format == LogFormat::kJson) return JsonLine(level, message, fields);
  std::string line =
      Cat(TimeStamp(), " ", "DIWE"[static_cast<int>(level)], " ");
  AppendEscaped(line, Cut(message), false);
  for (const LogField& field : fields) AppendField(line, field);
  line.push_back('\n');
  return line;
}

}  // namespace sluice
