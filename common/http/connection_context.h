#ifndef SLUICE_COMMON_HTTP_CONNECTION_CONTEXT_H_
#define SLUICE_COMMON_HTTP_CONNECTION_CONTEXT_H_

#include <atomic>
#include <cstddef>
#include <string>
#include <utility>

#include "common/http/answer_memory.h"
#include "common/http/http_server.h"
#include "common/http/tls_identity.h"

namespace sluice::http {

// The parts that all connections of a server share.
struct ConnectionContext {
  const HttpServerOptions& options;
  HttpServerStats& stats;
  const std::atomic<bool>& draining;
  AnswerMemory& answers;
  const std::string& no_memory_answer;  // see SendNoMemoryAnswer
  const TlsIdentity* tls = nullptr;     // null: plain HTTP
};

// Smaller bodies are read at once, whatever others take.
inline constexpr size_t kSmallBody = size_t{64} << 10;

// Returns whether a body of `body_bytes` fits that makes `all_bytes`, the bytes
// of all bodies.
inline bool BodyFits(const ConnectionContext& context, size_t body_bytes,
                     long long all_bytes) {
  const auto limit =
      static_cast<long long>(context.options.limits.all_body_bytes);
  return body_bytes <= kSmallBody || all_bytes <= limit;
}

// The bytes of one request's body, counted among all bodies of the server.
// `stats` outlives the share.
class BodyShare {
 public:
  explicit BodyShare(HttpServerStats& stats) : stats_(stats) {}
  BodyShare(BodyShare&& other) noexcept
      : stats_(other.stats_), bytes_(std::exchange(other.bytes_, 0)) {}
  ~BodyShare() { Set(0); }

  // Counts `bytes` in the place of the bytes that were counted before.
  void Set(size_t bytes) {
    stats_.body_bytes +=
        static_cast<long long>(bytes) - static_cast<long long>(bytes_);
    bytes_ = bytes;
  }

 private:
  HttpServerStats& stats_;
  size_t bytes_ = 0;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_CONNECTION_CONTEXT_H_
