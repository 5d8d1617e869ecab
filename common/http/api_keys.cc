#include "common/http/api_keys.h"

#include <openssl/crypto.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "common/base/log.h"
#include "common/http/error_answer.h"
#include "common/http/sha256.h"

namespace sluice::http {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr size_t kMaxKeys = 1000;
constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMinKeyBytes = 8;
constexpr size_t kMaxKeyBytes = 512;
// Shorter ones are taken with a warning: chosen by hand, they can be guessed.
constexpr size_t kGoodKeyBytes = 20;
// The name of a key without a name: this and so many hexadecimal digits of the
// key's SHA-256.
constexpr std::string_view kUnnamedPrefix = "key-";
constexpr size_t kUnnamedDigits = 12;

// What needs no key: probes, a page that asks for one, the API's description.
constexpr std::string_view kOpenPaths[] = {
    "/", "/livez", "/readyz", "/health", "/ping", "/docs", "/openapi.json"};
constexpr std::string_view kOpenFolder = "/page/";

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
         });
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

bool IsHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') ||
         (c >= 'A' && c <= 'F');
}

// Whether a name is, or looks like, that of a key without a name: those of now
// have some digits of the key's digest, those of earlier releases had the
// number of the key's line.
bool IsForUnnamedKeys(std::string_view name) {
  if (!name.starts_with(kUnnamedPrefix)) return false;
  name.remove_prefix(kUnnamedPrefix.size());
  const bool is_number =
      !name.empty() && std::all_of(name.begin(), name.end(),
                                   [](char c) { return c >= '0' && c <= '9'; });
  return is_number || (name.size() == kUnnamedDigits &&
                       std::all_of(name.begin(), name.end(), IsHex));
}

// Returns the name of a key that its line does not name. It is of the key
// alone: no other line, its place or a restart changes who the client is, and
// all gateways with this key agree.
std::string NameByDigest(const std::array<uint8_t, 32>& digest) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string name(kUnnamedPrefix);
  for (size_t i = 0; i < kUnnamedDigits; ++i) {
    name += kHex[i % 2 == 0 ? digest[i / 2] >> 4 : digest[i / 2] & 15];
  }
  return name;
}

StatusOr<ApiKey> ParseLine(std::string_view line, int number) {
  ApiKey key;
  if (const size_t colon = line.find(':'); colon != line.npos) {
    const std::string_view name = Trimmed(line.substr(0, colon));
    if (!IsName(name)) {
      return InvalidArgument("line ", number, ": a name is 1 to ",
                             kMaxNameBytes, " of A-Z a-z 0-9 . _ -");
    }
    if (IsForUnnamedKeys(name)) {
      return InvalidArgument(
          "line ", number, ": the name ", name, " looks like that of a key ",
          "without a name (", kUnnamedPrefix, " and a number or ",
          kUnnamedDigits, " hexadecimal digits): take another one");
    }
    key.name = name;
    line = Trimmed(line.substr(colon + 1));
  }
  if (line.size() < kMinKeyBytes || line.size() > kMaxKeyBytes) {
    return InvalidArgument("line ", number, ": a key has ", kMinKeyBytes,
                           " to ", kMaxKeyBytes, " characters, this one has ",
                           line.size());
  }
  if (!std::all_of(line.begin(), line.end(),
                   [](char c) { return c > ' ' && c < 0x7f; })) {
    return InvalidArgument("line ", number,
                           ": a key is of printable ASCII without spaces");
  }
  key.digest = Sha256(line);
  if (key.name.empty()) key.name = NameByDigest(key.digest);
  key.is_short = line.size() < kGoodKeyBytes;
  return key;
}

HttpResponse TooManyFailures(Duration wait) {
  ApiError error{429,
                 "The API key is not one of this server's, and too many such "
                 "keys came from this address",
                 "authentication_error", std::nullopt,
                 "too_many_wrong_api_keys"};
  error.retry_after_seconds = static_cast<int>(std::ceil(Seconds(wait)));
  return ErrorResponse(error);
}

// The keys that a request comes with: at most one of each header.
std::vector<std::string> KeysOf(const HttpRequest& request) {
  constexpr std::string_view kScheme = "bearer ";
  std::vector<std::string> keys;
  const std::string_view authorization = request.Header("authorization");
  if (AsciiLower(authorization.substr(0, kScheme.size())) == kScheme) {
    keys.emplace_back(Trimmed(authorization.substr(kScheme.size())));
  }
  if (const auto key = Trimmed(request.Header("x-api-key")); !key.empty()) {
    keys.emplace_back(key);
  }
  return keys;
}

HttpResponse Unauthorized(std::string_view message, const char* challenge) {
  HttpResponse response =
      ErrorResponse({401, std::string(message), "authentication_error",
                     std::nullopt, "invalid_api_key"});
  response.headers.emplace_back("WWW-Authenticate", challenge);
  return response;
}

}  // namespace

StatusOr<std::vector<ApiKey>> ParseApiKeys(std::string_view text) {
  std::vector<ApiKey> keys;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    SLUICE_ASSIGN_OR_RETURN(ApiKey key, ParseLine(line, number));
    for (const ApiKey& other : keys) {
      if (other.digest == key.digest) {
        return InvalidArgument("line ", number, ": the same key as ",
                               other.name, "'s");
      }
    }
    keys.push_back(std::move(key));
    if (keys.size() > kMaxKeys) {
      return InvalidArgument("more than ", kMaxKeys, " keys");
    }
  }
  if (keys.empty()) return InvalidArgument("there is no key in it");
  return keys;
}

StatusOr<std::unique_ptr<ApiKeys>> ApiKeys::Open(std::string path) {
  auto keys = std::unique_ptr<ApiKeys>(new ApiKeys(std::move(path)));
  SLUICE_RETURN_IF_ERROR(keys->Load());
  keys->watch_ =
      std::make_unique<FileWatch>("api-keys", [watched = keys.get()] {
        if (const Status loaded = watched->Load(); !loaded.ok()) {
          LogError(Message(loaded), "; the keys from before stay");
        }
      });
  return keys;
}

StatusOr<std::unique_ptr<ApiKeys>> ApiKeys::FromText(std::string_view text,
                                                     std::string_view source) {
  std::string lines(text);
  std::replace(lines.begin(), lines.end(), ',', '\n');
  auto parsed = ParseApiKeys(lines);
  OPENSSL_cleanse(lines.data(), lines.size());
  if (!parsed.ok()) return Annotate(parsed.status(), "API keys of ", source);
  auto keys = std::unique_ptr<ApiKeys>(new ApiKeys(""));
  keys->Set(*std::move(parsed), source);
  return keys;
}

Status ApiKeys::Load() {
  const auto version = VersionOf(path_);
  if (!version) {
    // Told once, not every second; so is a bad file.
    if (std::exchange(version_, FileVersion()) == FileVersion()) {
      return OkStatus();
    }
    return InvalidArgument("API keys ", path_, ": ", std::strerror(errno));
  }
  if (version == version_) return OkStatus();
  version_ = version;
  if (!S_ISREG(version->mode)) {
    return InvalidArgument("API keys ", path_, ": not a regular file");
  }
  if ((version->mode & S_IWOTH) != 0) {
    return InvalidArgument("API keys ", path_,
                           ": everybody may write to it (chmod o-w)");
  }
  if (static_cast<size_t>(version->size) > kMaxFileBytes) {
    return InvalidArgument("API keys ", path_, ": larger than ", kMaxFileBytes,
                           " bytes");
  }
  std::ifstream in(path_, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in.good() && !in.eof()) {
    return InvalidArgument("API keys ", path_, ": ", std::strerror(errno));
  }
  auto keys = ParseApiKeys(text);
  OPENSSL_cleanse(text.data(), text.size());
  if (!keys.ok()) return Annotate(keys.status(), "API keys ", path_);
  if ((version->mode & S_IROTH) != 0) {
    LogWarning("API keys ", path_, ": everybody on this machine may read it");
  }
  Set(*std::move(keys), path_);
  return OkStatus();
}

void ApiKeys::Set(Keys keys, std::string_view source) {
  LogInfo("API keys: ", keys.size(), " read from ", source);
  for (const ApiKey& key : keys) {
    if (!key.is_short) continue;
    LogWarning("API keys: ", key.name, "'s has fewer than ", kGoodKeyBytes,
               " characters and may be guessed; take openssl rand -hex 32");
  }
  auto current = std::make_shared<const Keys>(std::move(keys));
  MutexLock lock(mutex_);
  keys_ = std::move(current);
}

std::shared_ptr<const ApiKeys::Keys> ApiKeys::Current() const {
  MutexLock lock(mutex_);
  return keys_;
}

std::optional<std::string> ApiKeys::NameOf(
    std::string_view authorization) const {
  HttpRequest request;
  request.headers.emplace_back("authorization", authorization);
  const auto keys = KeysOf(request);
  return keys.empty() ? std::nullopt : NameOfKey(keys.front());
}

std::optional<std::string> ApiKeys::NameOfKey(std::string_view key) const {
  const auto digest = Sha256(key);
  const auto keys = Current();
  // All are compared, and the comparison is of digests: time tells nothing.
  size_t found = keys->size();
  for (size_t i = 0; i < keys->size(); ++i) {
    const bool equal = CRYPTO_memcmp((*keys)[i].digest.data(), digest.data(),
                                     digest.size()) == 0;
    found = equal ? i : found;
  }
  if (found == keys->size()) return std::nullopt;
  return (*keys)[found].name;
}

std::optional<HttpResponse> ApiKeys::Screen(HttpRequest& request) const {
  const bool open = request.method == "OPTIONS" ||
                    request.path.starts_with(kOpenFolder) ||
                    std::find(std::begin(kOpenPaths), std::end(kOpenPaths),
                              request.path) != std::end(kOpenPaths);
  const bool none = request.Header("authorization").empty() &&
                    request.Header("x-api-key").empty();
  const std::vector<std::string> offered = KeysOf(request);
  std::optional<std::string> name;
  for (const std::string& key : offered) {
    if (!name) name = NameOfKey(key);
  }
  // A known key is never delayed by others: keys are too long to be guessed.
  const Duration wait = name || offered.empty()
                            ? Duration::zero()
                            : failed_.OnFailure(request.peer);
  // No handler needs the key itself.
  std::erase_if(request.headers, [](const auto& header) {
    return header.first == "authorization" || header.first == "x-api-key";
  });
  if (name) request.tenant = *std::move(name);
  if (open || !request.tenant.empty()) return std::nullopt;
  if (wait > Duration::zero()) return TooManyFailures(wait);
  if (none) {
    return Unauthorized(
        "An API key is needed: send the header Authorization: Bearer KEY, or "
        "X-Api-Key: KEY",
        "Bearer realm=\"sluice\"");
  }
  return Unauthorized("The API key is not one of this server's",
                      "Bearer realm=\"sluice\", error=\"invalid_token\"");
}

}  // namespace sluice::http
