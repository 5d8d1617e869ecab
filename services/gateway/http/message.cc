#include "services/gateway/http/message.h"

#include <algorithm>
#include <charconv>
#include <random>

namespace sluice::gateway {
namespace {

bool IsIdChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '.' || c == '_' || c == ':' || c == '-';
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
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 417:
      return "Expectation Failed";
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
  } else if (length == -1) {
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

std::string RandomId() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  std::string id;
  for (int i = 0; i < 24; ++i) id += "0123456789abcdef"[generator() >> 60];
  return id;
}

}  // namespace sluice::gateway
