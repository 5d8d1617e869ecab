#include "common/tools/hub/hub_client.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "common/base/check.h"

namespace sluice {
namespace {

constexpr size_t kMaxErrorBytes = 4096;  // of an error's body
constexpr long kMaxRedirects = 10;
constexpr double kFirstPause = 0.25;  // seconds, doubled each time

// Where systems keep the certificates that they trust; libcurl knows the place
// of the system that it was built on. A system without any may run a bundle,
// which brings some along (deploy/packages).
std::string CertificateFile() {
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  std::error_code ignored;
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt",
                           "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (std::filesystem::exists(path, ignored)) return path;
  }
  const std::filesystem::path own =
      std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() /
      "../share/sluice/ca-certificates.crt";
  return std::filesystem::exists(own, ignored) ? own.string() : "";
}

// Compares names of URLs, in which case does not matter.
bool IsScheme(std::string_view text, std::string_view small) {
  return std::equal(text.begin(), text.end(), small.begin(), small.end(),
                    [](char a, char b) {
                      return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b;
                    });
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// Returns whether another attempt may get further.
bool IsTransient(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

bool IsTransientStatus(long status) {
  return status == 408 || status == 429 || status >= 500;
}

StatusCode CodeOf(long status) {
  switch (status) {
    case 401:
      return StatusCode::kUnauthenticated;
    case 403:
      return StatusCode::kPermissionDenied;
    case 404:
      return StatusCode::kNotFound;
    case 429:
      return StatusCode::kResourceExhausted;
    default:
      return StatusCode::kUnavailable;
  }
}

// The server's words on one line, without what a terminal would obey.
std::string PlainText(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = ' ';
  }
  return text.substr(0, 300);
}

}  // namespace

// One request, and what came of it.
struct HubClient::Attempt {
  CURL* curl = nullptr;
  ByteReceiver* receiver = nullptr;
  std::map<std::string, std::string> headers;
  long status = 0;
  bool begun = false;
  std::string error_body;
  Status result;
  bool transient = false;

  static size_t TakeHeader(char* data, size_t size, size_t count, void* self) {
    static_cast<Attempt*>(self)->Header({data, size * count});
    return size * count;
  }
  static size_t TakeBody(char* data, size_t size, size_t count, void* self) {
    auto* attempt = static_cast<Attempt*>(self);
    attempt->result = attempt->Body({data, size * count});
    return attempt->result.ok() ? size * count : CURL_WRITEFUNC_ERROR;
  }

  void Header(std::string_view line) {
    if (line.starts_with("HTTP/")) {
      // Of the next answer; what the hub says of a file goes before what the
      // place says that it redirects to.
      std::erase_if(headers, [](const auto& header) {
        return !header.first.starts_with("x-linked-");
      });
    }
    const size_t colon = line.find(':');
    if (colon == line.npos) return;
    std::string name(line.substr(0, colon));
    for (char& c : name) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    line.remove_prefix(colon + 1);
    const size_t begin = line.find_first_not_of(" \t");
    const size_t end = line.find_last_not_of(" \t\r\n");
    headers[name] = begin == line.npos || end == line.npos
                        ? ""
                        : std::string(line.substr(begin, end - begin + 1));
  }

  Status Body(std::string_view bytes) {
    if (!begun) SLUICE_RETURN_IF_ERROR(BeginBody());
    if (status == 200 || status == 206) return receiver->Take(bytes);
    error_body.append(bytes.substr(0, kMaxErrorBytes - error_body.size()));
    return OkStatus();
  }

  Status BeginBody() {
    begun = true;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200) {
      if (!receiver->end().has_value()) return receiver->Begin(0);
      return Unimplemented("the server does not give ranges of a file");
    }
    if (status != 206) return OkStatus();
    std::string_view range = headers["content-range"];
    if (range.starts_with("bytes ")) range.remove_prefix(6);
    if (ParseNumber(range) != receiver->offset()) {
      return Unavailable("asked for bytes from ", receiver->offset(),
                         ", the server gives '", PlainText(std::string(range)),
                         "'");
    }
    return receiver->Begin(receiver->offset());
  }

  // The status of an answer that is no file.
  Status Refusal() const {
    std::string words = error_body;
    std::string kind;
    if (const auto at = headers.find("x-error-code"); at != headers.end()) {
      kind = Cat(", ", at->second);
    }
    if (const auto at = headers.find("x-error-message"); at != headers.end()) {
      words = at->second;
    }
    return MakeStatus(CodeOf(status), "HTTP ", status, PlainText(kind),
                      words.empty() ? "" : ": ", PlainText(words));
  }

  std::optional<double> RetryAfter() const {
    const auto at = headers.find("retry-after");
    if (at == headers.end()) return std::nullopt;
    const auto seconds = ParseNumber(at->second);
    if (!seconds.has_value()) return std::nullopt;
    return static_cast<double>(*seconds);
  }
};

bool IsPrivateEndpoint(std::string_view endpoint) {
  const size_t scheme = endpoint.find("://");
  if (scheme == endpoint.npos) return false;  // libcurl takes it as http
  if (IsScheme(endpoint.substr(0, scheme), "https")) return true;
  if (!IsScheme(endpoint.substr(0, scheme), "http")) return false;
  std::string_view host = endpoint.substr(scheme + 3);
  host = host.substr(0, host.find_first_of("/?#\\"));
  if (const size_t at = host.rfind('@'); at != host.npos) {
    host.remove_prefix(at + 1);
  }
  const bool in_brackets = host.starts_with('[');
  const size_t end = in_brackets ? host.find(']') : host.find(':');
  const std::string name(in_brackets && end != host.npos
                             ? host.substr(1, end - 1)
                             : host.substr(0, end));
  in_addr v4;
  if (::inet_pton(AF_INET, name.c_str(), &v4) == 1) {
    return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  return IsScheme(name, "localhost") || (in_brackets && name == "::1");
}

Status TextReceiver::Begin(uint64_t offset) {
  text_.clear();
  return OkStatus();
}

Status TextReceiver::Take(std::string_view bytes) {
  if (bytes.size() > max_bytes_ - text_.size()) {
    return ResourceExhausted("the answer is longer than ", max_bytes_,
                             " bytes");
  }
  text_.append(bytes);
  return OkStatus();
}

HubClient::HubClient(Options options)
    : options_(std::move(options)), curl_(curl_easy_init()) {
  SLUICE_CHECK(curl_ != nullptr);
}

HubClient::~HubClient() { curl_easy_cleanup(static_cast<CURL*>(curl_)); }

HubClient::Attempt HubClient::Try(const std::string& url,
                                  ByteReceiver* receiver) {
  static const std::string certificates = CertificateFile();
  CURL* const curl = static_cast<CURL*>(curl_);
  Attempt attempt;
  attempt.curl = curl;
  attempt.receiver = receiver;
  curl_easy_reset(curl);  // Keeps connections.
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "sluice");
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  // What began encrypted stays so.
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR,
                   url.starts_with("https:") ? "https" : "http,https");
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, kMaxRedirects);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT,
                   static_cast<long>(options_.timeout_s));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME,
                   static_cast<long>(options_.timeout_s));
  if (!certificates.empty()) {
    curl_easy_setopt(curl, CURLOPT_CAINFO, certificates.c_str());
  }
  if (!options_.token.empty() && url.starts_with(options_.endpoint + "/")) {
    // libcurl keeps it from other hosts, ports and protocols.
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, options_.token.c_str());
  }
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &Attempt::TakeHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &attempt);
  std::string range;
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  if (receiver == nullptr) {
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  } else {
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Attempt::TakeBody);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &attempt);
    const auto end = receiver->end();
    range = Cat(receiver->offset(), "-", end ? Cat(*end - 1) : "");
    if (receiver->offset() > 0 || end.has_value()) {
      curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
    }
  }
  const CURLcode code = curl_easy_perform(curl);
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &attempt.status);
  const char* place = nullptr;
  curl_easy_getinfo(curl, CURLINFO_EFFECTIVE_URL, &place);
  last_place_ = place == nullptr ? "" : place;
  if (!attempt.result.ok()) return attempt;  // The receiver's.
  if (code != CURLE_OK) {
    attempt.result = Unavailable(curl_easy_strerror(code));
    attempt.transient = IsTransient(code);
  } else if (attempt.status >= 400) {
    attempt.result = attempt.Refusal();
    attempt.transient = IsTransientStatus(attempt.status);
  }
  return attempt;
}

StatusOr<std::map<std::string, std::string>> HubClient::Repeat(
    const std::string& url, ByteReceiver* receiver) {
  double pause = kFirstPause;
  int failures = 0;
  while (true) {
    const uint64_t before = receiver == nullptr ? 0 : receiver->offset();
    Attempt attempt = Try(url, receiver);
    if (attempt.result.ok()) return std::move(attempt.headers);
    const Status failed = Annotate(attempt.result, url);
    if (!attempt.transient) return failed;
    if (receiver != nullptr && receiver->offset() > before) {
      failures = 0;
      pause = kFirstPause;
    }
    if (++failures == kMostFailures) {
      return Annotate(failed, "given up after ", failures, " attempts");
    }
    const double wait = attempt.RetryAfter().value_or(pause);
    if (wait > kLongestWait) {
      return Annotate(failed, "the server asks to wait for ", wait,
                      " s, limit ", kLongestWait);
    }
    pause *= 2;
    if (options_.on_wait) options_.on_wait(Message(failed), wait);
    std::this_thread::sleep_for(std::chrono::duration<double>(wait));
  }
}

Status HubClient::Get(const std::string& url, ByteReceiver& receiver) {
  return Repeat(url, &receiver).status();
}

StatusOr<std::map<std::string, std::string>> HubClient::Head(
    const std::string& url) {
  return Repeat(url, nullptr);
}

}  // namespace sluice
