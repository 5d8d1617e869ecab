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

// A listener's certificate and key. The thread "http-tls" reads their files
// again when they change; an open connection keeps its own. Files that do not
// fit each other are logged, and the earlier ones stay. TLS 1.2 and later. Any
// thread.
class TlsIdentity {
 public:
  using Context = boost::asio::ssl::context;

  // INVALID_ARGUMENT names the file that cannot be used, and why.
  static StatusOr<std::unique_ptr<TlsIdentity>> Open(TlsFiles files);

  // The context for a new connection; never null.
  std::shared_ptr<Context> Current() const;

 private:
  explicit TlsIdentity(TlsFiles files) : files_(std::move(files)) {}
  // Reads the files if one changed since the last call.
  Status Load();

  const TlsFiles files_;
  // The versions read last. Used by Open, then by the thread.
  std::optional<FileVersion> certificate_version_, key_version_;
  mutable Mutex mutex_;
  std::shared_ptr<Context> context_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<FileWatch> watch_;  // last: it uses all of the above
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_TLS_IDENTITY_H_
