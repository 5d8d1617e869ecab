#include "common/http/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/http/error_answer.h"

namespace sluice::gateway {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr size_t kMaxKeys = 1000;
constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMinKeyBytes = 8;
constexpr size_t kMaxKeyBytes = 512;
constexpr auto kLookEvery = std::chrono::seconds(1);

// What needs no key: probes, and a page that asks for one.
constexpr std::string_view kOpenPaths[] = {"/", "/livez", "/readyz", "/health",
                                           "/ping"};
constexpr std::string_view kOpenFolder = "/page/";

std::array<uint8_t, 32> DigestOf(std::string_view key) {
  std::array<uint8_t, 32> digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(),
         digest.data());
  return digest;
}

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

StatusOr<ApiKey> ParseLine(std::string_view line, int number) {
  ApiKey key{Cat("key-", number), {}};
  if (const size_t colon = line.find(':'); colon != line.npos) {
    const std::string_view name = Trimmed(line.substr(0, colon));
    if (!IsName(name)) {
      return InvalidArgument("line ", number, ": a name is 1 to ",
                             kMaxNameBytes, " of A-Z a-z 0-9 . _ -");
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
  key.digest = DigestOf(line);
  return key;
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
  keys->thread_ =
      NamedThread("api-keys", [watched = keys.get()] { watched->Watch(); });
  return keys;
}

ApiKeys::~ApiKeys() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  stop_.NotifyAll();
  thread_.Join();
}

Status ApiKeys::Load() {
  struct stat info {};
  if (::stat(path_.c_str(), &info) != 0) {
    // Told once, not every second; so is a bad file.
    if (std::exchange(version_, Version()) == Version()) return OkStatus();
    return InvalidArgument("API keys ", path_, ": ", std::strerror(errno));
  }
  const Version version{info.st_dev, info.st_ino, info.st_mtim.tv_sec,
                        info.st_mtim.tv_nsec, info.st_size};
  if (version == version_) return OkStatus();
  version_ = version;
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument("API keys ", path_, ": not a regular file");
  }
  if ((info.st_mode & S_IWOTH) != 0) {
    return InvalidArgument("API keys ", path_,
                           ": everybody may write to it (chmod o-w)");
  }
  if (static_cast<size_t>(info.st_size) > kMaxFileBytes) {
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
  if ((info.st_mode & S_IROTH) != 0) {
    LogWarning("API keys ", path_, ": everybody on this machine may read it");
  }
  LogInfo("API keys: ", keys->size(), " read from ", path_);
  auto current = std::make_shared<const Keys>(*std::move(keys));
  MutexLock lock(mutex_);
  keys_ = std::move(current);
  return OkStatus();
}

void ApiKeys::Watch() {
  for (;;) {
    {
      const TimePoint next = Clock::now() + kLookEvery;
      MutexLock lock(mutex_);
      while (!stopping_ && stop_.WaitUntil(mutex_, next)) {
      }
      if (stopping_) return;
    }
    if (const Status loaded = Load(); !loaded.ok()) {
      LogError(Message(loaded), "; the keys from before stay");
    }
  }
}

std::shared_ptr<const ApiKeys::Keys> ApiKeys::Current() const {
  MutexLock lock(mutex_);
  return keys_;
}

std::optional<std::string> ApiKeys::NameOf(
    std::string_view authorization) const {
  constexpr size_t kScheme = 7;
  if (AsciiLower(authorization.substr(0, kScheme)) != "bearer ") {
    return std::nullopt;
  }
  const auto digest = DigestOf(Trimmed(authorization.substr(kScheme)));
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
  const std::string_view authorization = request.Header("authorization");
  if (authorization.empty()) {
    if (open) return std::nullopt;
    return Unauthorized(
        "An API key is needed: send the header Authorization: Bearer KEY",
        "Bearer realm=\"sluice\"");
  }
  auto name = NameOf(authorization);
  if (!name) {
    if (open) return std::nullopt;
    return Unauthorized("The API key is not one of this server's",
                        "Bearer realm=\"sluice\", error=\"invalid_token\"");
  }
  request.tenant = *std::move(name);
  // Nobody behind here needs the key itself.
  std::erase_if(request.headers, [](const auto& header) {
    return header.first == "authorization";
  });
  return std::nullopt;
}

}  // namespace sluice::gateway
