#include "common/standby/forwarded_message.h"

#include <algorithm>
#include <array>
#include <vector>

#include "common/base/cat.h"
#include "common/standby/peer_secret.h"

namespace sluice::standby {
namespace {

using http::AsciiLower;
using http::HttpHeaders;
using http::HttpRequest;

constexpr std::array<std::string_view, 9> kOfConnection = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade"};
constexpr std::string_view kLastEventId = "last-event-id";
// Forwarded names the clients that X-Forwarded-For is written from.
constexpr std::array<std::string_view, 7> kWrittenAnew = {
    "content-length", "expect",         "x-request-id",     "x-forwarded-for",
    "forwarded",      kForwardedHeader, PeerSecret::kHeader};
constexpr std::array<std::string_view, 4> kOfEveryAnswer = {
    "content-length", "content-type", "x-request-id", "traceparent"};

// Headers that a server reads, also if Connection names them. The next server
// gets them: else the answer would depend on the server that is asked.
constexpr std::array<std::string_view, 12> kRead = {
    "accept",
    "access-control-request-headers",
    "access-control-request-method",
    "authorization",
    "content-type",
    "host",
    "if-none-match",
    kLastEventId,
    "origin",
    "traceparent",
    "x-api-key",
    "x-sluice-trace"};

template <typename Names>
bool Has(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the names that Connection lists, in lower case.
std::vector<std::string> ListedByConnection(const HttpHeaders& headers) {
  std::vector<std::string> names;
  for (const auto& [name, value] : headers) {
    if (name != "connection") continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      std::string_view one = rest.substr(0, comma);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      while (one.starts_with(' ') || one.starts_with('\t'))
        one.remove_prefix(1);
      while (one.ends_with(' ') || one.ends_with('\t')) one.remove_suffix(1);
      names.push_back(AsciiLower(one));
    }
  }
  return names;
}

// Returns the path with escapes where a target needs them (RFC 3986, pchar).
std::string Escape(std::string_view path) {
  constexpr std::string_view kPlain = "-._~!$&'()*+,;=:@/";
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : path) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') ||
                          kPlain.find(c) != kPlain.npos;
    if (is_plain) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += {'%', kHex[byte >> 4], kHex[byte & 15]};
  }
  return out;
}

void AppendLine(std::string& out, std::string_view name,
                std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

}  // namespace

std::string ForwardedHead(const HttpRequest& request,
                          std::string_view last_event_id,
                          const PeerSecret* secret) {
  const bool is_head = request.method == "HEAD";
  std::string out =
      Cat(is_head ? "GET" : request.method, " ", Escape(request.path));
  if (!request.query.empty()) out += "?" + request.query;
  out += " HTTP/1.1\r\n";
  const std::vector<std::string> listed = ListedByConnection(request.headers);
  std::string clients;
  for (const auto& [name, value] : request.headers) {
    if (name == "x-forwarded-for") clients += value + ", ";
    if (Has(kOfConnection, name) || Has(kWrittenAnew, name) ||
        (Has(listed, name) && !Has(kRead, name)) ||
        (name == kLastEventId && !last_event_id.empty())) {
      continue;
    }
    AppendLine(out, name, value);
  }
  // A request in HTTP/1.0 may have none.
  if (request.Header("host").empty()) AppendLine(out, "host", "localhost");
  clients += request.peer.empty() ? "unknown" : request.peer;
  AppendLine(out, "x-forwarded-for", clients);
  AppendLine(out, "x-request-id", request.request_id);
  if (!last_event_id.empty()) AppendLine(out, kLastEventId, last_event_id);
  AppendLine(out, kForwardedHeader, "1");
  if (secret != nullptr) {
    AppendLine(out, PeerSecret::kHeader, secret->Prove(request, clients));
  }
  AppendLine(out, "content-length", Cat(request.body.size()));
  AppendLine(out, "connection", "close");
  return out + "\r\n";
}

HttpHeaders ForwardedAnswerHeaders(const HttpHeaders& headers) {
  const std::vector<std::string> listed = ListedByConnection(headers);
  HttpHeaders kept;
  for (const auto& header : headers) {
    const std::string& name = header.first;
    if (Has(kOfConnection, name) || Has(kOfEveryAnswer, name) ||
        Has(listed, name) || name.starts_with("access-control-") ||
        (name == "vary" && AsciiLower(header.second) == "origin")) {
      continue;
    }
    kept.push_back(header);
  }
  return kept;
}

}  // namespace sluice::standby
