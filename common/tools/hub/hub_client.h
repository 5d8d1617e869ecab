#ifndef SLUICE_COMMON_TOOLS_HUB_HUB_CLIENT_H_
#define SLUICE_COMMON_TOOLS_HUB_HUB_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace sluice {

// Takes the bytes of one file or answer, over as many requests as that needs.
// Its owner is the caller of HubClient::Get.
class ByteReceiver {
 public:
  virtual ~ByteReceiver() = default;
  // The position of the next byte that is wanted.
  virtual uint64_t offset() const = 0;
  // The position behind the last one; nothing: the end of the file.
  virtual std::optional<uint64_t> end() const { return std::nullopt; }
  // An answer begins at byte `offset`: at offset(), or at 0 from a server that
  // does not give ranges.
  virtual Status Begin(uint64_t offset) = 0;
  virtual Status Take(std::string_view bytes) = 0;
};

// Receives a text of at most `max_bytes`.
class TextReceiver : public ByteReceiver {
 public:
  explicit TextReceiver(size_t max_bytes) : max_bytes_(max_bytes) {}
  uint64_t offset() const override { return 0; }
  Status Begin(uint64_t offset) override;
  Status Take(std::string_view bytes) override;
  const std::string& text() const { return text_; }

 private:
  const size_t max_bytes_;
  std::string text_;
};

// Returns whether what is sent to the URL `endpoint` is hidden from the
// network: by TLS, or because it stays on this machine.
bool IsPrivateEndpoint(std::string_view endpoint);

// HTTP to a hub, on libcurl: the system's certificates and proxies, redirects,
// ranges, repeated attempts. The token goes to the hub's own address alone, not
// to where it redirects. Threadless.
class HubClient {
 public:
  struct Options {
    std::string endpoint;  // of the hub
    std::string token;     // for URLs of the endpoint; empty: none
    int timeout_s = 10;    // to connect, and without a byte
    // Is told why a request is repeated, and in how many seconds.
    std::function<void(const std::string& why, double seconds)> on_wait;
  };
  explicit HubClient(Options options);
  ~HubClient();

  // Gets `url` into `receiver`. Goes on where a connection is cut, waits as
  // long as Retry-After says (kLongestWait at most), and gives up after
  // kMostFailures attempts in a row without a byte. UNAUTHENTICATED for 401,
  // PERMISSION_DENIED for 403, NOT_FOUND for 404, RESOURCE_EXHAUSTED for 429,
  // UNAVAILABLE for others: with the server's words.
  Status Get(const std::string& url, ByteReceiver& receiver);

  // Where the last answer came from, behind its redirects.
  const std::string& last_place() const { return last_place_; }

  // Returns the headers of a HEAD request, by names in small letters: the last
  // answer's, and X-Linked-* of those before it. Errors as above.
  StatusOr<std::map<std::string, std::string>> Head(const std::string& url);

  static constexpr double kLongestWait = 600;  // seconds
  static constexpr int kMostFailures = 5;

 private:
  struct Attempt;
  Attempt Try(const std::string& url, ByteReceiver* receiver);
  // Repeats until there is an answer, or none is to be expected.
  StatusOr<std::map<std::string, std::string>> Repeat(const std::string& url,
                                                      ByteReceiver* receiver);

  const Options options_;
  void* const curl_;
  std::string last_place_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TOOLS_HUB_HUB_CLIENT_H_
