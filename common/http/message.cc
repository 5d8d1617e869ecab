#include "common/http/message.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "common/base/random_bytes.h"

namespace sluice::http {
namespace {

bool IsIdChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '.' || c == '_' || c == ':' || c == '-';
}

// "%41" and the like as bytes.
std::optional<std::string> Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    unsigned byte = 0;
    const char* end = text.data() + i + 3;
    const auto parsed = std::from_chars(end - 2, end, byte, 16);
    if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
    if (byte < 0x20 || byte == 0x7f) return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

bool IsLowerHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == text.npos;
}

bool IsZero(std::string_view text) {
  return text.find_first_not_of('0') == text.npos;
}

void AppendHeader(std::string& out, std::string_view name,
                  std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 529:
      return "Overloaded";
    default:
      return "Unknown";
  }
}

std::string SerializeHead(const HttpResponse& response,
                          std::string_view request_id, long long length,
                          bool keep_alive) {
  std::string out = "HTTP/1.1 " + std::to_string(response.status) + " ";
  out.append(ReasonPhrase(response.status)).append("\r\n");
  if (!response.content_type.empty()) {
    AppendHeader(out, "Content-Type", response.content_type);
  }
  if (length >= 0) {
    AppendHeader(out, "Content-Length", std::to_string(length));
  } else if (length == kChunked) {
    AppendHeader(out, "Transfer-Encoding", "chunked");
  }
  for (const auto& [name, value] : response.headers) {
    AppendHeader(out, name, value);
  }
  AppendHeader(out, "X-Request-Id", request_id);
  AppendHeader(out, "Connection", keep_alive ? "keep-alive" : "close");
  out.append("\r\n");
  return out;
}

std::string SerializeChunk(std::string_view bytes) {
  char size[20];
  const auto end =
      std::to_chars(size, size + sizeof(size), bytes.size(), 16).ptr;
  std::string out(size, end);
  out.reserve(out.size() + bytes.size() + 4);
  out.append("\r\n").append(bytes).append("\r\n");
  return out;
}

std::string SanitizedRequestId(std::string_view offered) {
  const bool sane = !offered.empty() && offered.size() <= 128 &&
                    std::all_of(offered.begin(), offered.end(), IsIdChar);
  return sane ? std::string(offered) : RandomId();
}

std::string SanitizedTraceparent(std::string_view offered) {
  // 00-TRACE(32)-PARENT(16)-FLAGS(2)
  if (offered.size() != 55 || offered[2] != '-' || offered[35] != '-' ||
      offered[52] != '-') {
    return "";
  }
  const std::string_view version = offered.substr(0, 2);
  const std::string_view trace = offered.substr(3, 32);
  const std::string_view parent = offered.substr(36, 16);
  const bool valid = IsLowerHex(version) && version != "ff" &&
                     IsLowerHex(trace) && !IsZero(trace) &&
                     IsLowerHex(parent) && !IsZero(parent) &&
                     IsLowerHex(offered.substr(53));
  return valid ? std::string(offered) : "";
}

bool ParseTarget(std::string_view target, HttpRequest& request) {
  if (target == "*") {
    request.path = target;
    return request.method == "OPTIONS";
  }
  if (!target.starts_with('/')) {
    const size_t colon = target.find("://");
    const std::string scheme = AsciiLower(target.substr(0, colon));
    if (colon == target.npos || (scheme != "http" && scheme != "https")) {
      return false;
    }
    target.remove_prefix(colon + 3);
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    if (end == 0) return false;  // no host
    target.remove_prefix(end);
  }
  const size_t question = target.find('?');
  auto path = Unescape(target.substr(0, question));
  if (!path) return false;
  if (path->empty()) path->push_back('/');
  request.path = *std::move(path);
  if (question != target.npos) request.query = target.substr(question + 1);
  return true;
}

std::string AsciiLower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string RandomId() { return RandomHex(24); }

}  // namespace sluice::http
