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

// One key: its name, and of the key itself the SHA-256 alone.
struct ApiKey {
  std::string name;
  std::array<uint8_t, 32> digest{};
  bool is_short = false;  // fewer than 20 characters: can be guessed
};

// The keys of a file's text: a line is "name:key" or "key" (named "key-LINE");
// empty lines and those that begin with # are skipped. Names are 1 to 64 of
// [A-Za-z0-9._-], keys 8 to 512 printable characters without spaces; several
// keys may have one name. INVALID_ARGUMENT tells the line, never the key.
StatusOr<std::vector<ApiKey>> ParseApiKeys(std::string_view text);

// The keys that requests may come with, in Authorization: Bearer or X-Api-Key.
// Those of a file are read again when it changes, by the thread "api-keys"; a
// file that became bad is logged, and the keys from before stay. Any thread.
class ApiKeys {
 public:
  // An error naming `path` if it cannot be read, has no key or a bad line, or
  // may be written by everybody.
  static StatusOr<std::unique_ptr<ApiKeys>> Open(std::string path);
  // The keys of `text`, as ParseApiKeys reads it, with commas for line ends
  // too; `source` names it in errors.
  static StatusOr<std::unique_ptr<ApiKeys>> FromText(std::string_view text,
                                                     std::string_view source);

  // The name of the key in an Authorization header ("Bearer KEY"); nothing
  // if it is not one of ours. Takes the same time whichever key it is.
  std::optional<std::string> NameOf(std::string_view authorization) const;

  // Lets a request in, setting its tenant and removing the key from its
  // headers, or gives the 401 that it gets; 429 once the client's address came
  // with too many wrong keys (FailedKeys).
  // Probes, the page at "/" and OPTIONS need no key, and a wrong one does not
  // matter to them; all else needs one.
  std::optional<HttpResponse> Screen(HttpRequest& request) const;

  // How many keys are known now.
  size_t size() const { return Current()->size(); }

 private:
  using Keys = std::vector<ApiKey>;
  enum class Verdict { kIn, kWrong, kTooOften };

  explicit ApiKeys(std::string path) : path_(std::move(path)) {}
  // Reads the file if it is another one than last time.
  Status Load();
  void Set(Keys keys, std::string_view source);
  std::optional<std::string> NameOfKey(std::string_view key) const;
  // Tries one key of `request`, and sets its tenant if it is ours.
  Verdict Try(HttpRequest& request, std::string_view key) const;
  std::shared_ptr<const Keys> Current() const;

  const std::string path_;
  // Seen last: nothing before the first look, empty if there was no file. Of
  // Open, then of the thread.
  std::optional<FileVersion> version_;
  mutable FailedKeys failed_;
  mutable Mutex mutex_;
  std::shared_ptr<const Keys> keys_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<FileWatch> watch_;  // last: it uses all of the above
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_API_KEYS_H_
