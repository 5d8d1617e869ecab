#ifndef SLUICE_COMMON_HTTP_TLS_IDENTITY_H_
#define SLUICE_COMMON_HTTP_TLS_IDENTITY_H_

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <optional>
#include <string>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/http/file_watch.h"
#include "common/http/http_server.h"

namespace sluice::http {

// The certificate and key that a listener shows, from files that are read
// again when they change, by the thread "http-tls": a connection keeps what it
// began with. Files that do not fit each other are logged, and those from
// before stay. TLS 1.2 and later. Any thread.
class TlsIdentity {
 public:
  using Context = boost::asio::ssl::context;

  // INVALID_ARGUMENT names the file that cannot be used, and why.
  static StatusOr<std::unique_ptr<TlsIdentity>> Open(TlsFiles files);

  // For a new connection; never null.
  std::shared_ptr<Context> Current() const;

 private:
  explicit TlsIdentity(TlsFiles files) : files_(std::move(files)) {}
  // Reads the files if one is another than last time.
  Status Load();

  const TlsFiles files_;
  // Seen last; of Open, then of the thread.
  std::optional<FileVersion> certificate_version_, key_version_;
  mutable Mutex mutex_;
  std::shared_ptr<Context> context_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<FileWatch> watch_;  // last: it uses all of the above
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_TLS_IDENTITY_H_
