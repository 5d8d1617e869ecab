#ifndef SLUICE_COMMON_HTTP_API_KEYS_H_
#define SLUICE_COMMON_HTTP_API_KEYS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/http/failed_keys.h"
#include "common/http/file_watch.h"
#include "common/http/message.h"

namespace sluice::http {

// One key: its name, and the SHA-256 of the key.
struct ApiKey {
  std::string name;
  std::array<uint8_t, 32> digest{};
  bool is_short = false;  // fewer than 20 characters: can be guessed
};

// The keys of a file's text: a line is "name:key" or "key" (named "key-" and
// the first 12 hexadecimal digits of its SHA-256: a name of the key alone,
// whatever the lines around it); empty lines and those that begin with # are
// skipped. Names are 1 to 64 of [A-Za-z0-9._-] and do not look like those of
// unnamed keys, keys 8 to 512 printable characters without spaces; several keys
// may have one name. INVALID_ARGUMENT tells the line, never the key.
StatusOr<std::vector<ApiKey>> ParseApiKeys(std::string_view text);

// The keys that requests may carry in Authorization: Bearer or X-Api-Key. The
// thread "api-keys" reads a file of keys again when it changes; a bad file is
// logged and the earlier keys stay. Any thread.
class ApiKeys {
 public:
  // Reads the keys of the file `path`. An error names `path` if the file cannot
  // be read, has no key or a bad line, or is writable for all users.
  static StatusOr<std::unique_ptr<ApiKeys>> Open(std::string path);
  // The keys of `text`, as ParseApiKeys reads it, with commas for line ends
  // too; `source` names it in errors.
  static StatusOr<std::unique_ptr<ApiKeys>> FromText(std::string_view text,
                                                     std::string_view source);

  // The name of the key in an Authorization header ("Bearer KEY"); nothing for
  // an unknown key. The time does not depend on the key.
  std::optional<std::string> NameOf(std::string_view authorization) const;

  // Accepts a request: sets its tenant, removes the key from its headers and
  // returns nothing, however many wrong keys came from its address. Else
  // returns the answer: 401, or 429 for an unknown key beyond the address's
  // limit (FailedKeys). Probes, the page at "/" and OPTIONS need no key, and
  // may carry a wrong one.
  std::optional<HttpResponse> Screen(HttpRequest& request) const;

  // The number of keys.
  size_t size() const { return Current()->size(); }

 private:
  using Keys = std::vector<ApiKey>;
  explicit ApiKeys(std::string path) : path_(std::move(path)) {}
  // Reads the file if it changed since the last call.
  Status Load();
  void Set(Keys keys, std::string_view source);
  std::optional<std::string> NameOfKey(std::string_view key) const;
  std::shared_ptr<const Keys> Current() const;

  const std::string path_;
  // The version read last: nothing before the first look, empty without a file.
  // Used by Open, then by the thread.
  std::optional<FileVersion> version_;
  mutable FailedKeys failed_;
  mutable Mutex mutex_;
  std::shared_ptr<const Keys> keys_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<FileWatch> watch_;  // last: it uses all of the above
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_API_KEYS_H_
