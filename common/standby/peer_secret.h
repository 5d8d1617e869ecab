#ifndef SLUICE_COMMON_STANDBY_PEER_SECRET_H_
#define SLUICE_COMMON_STANDBY_PEER_SECRET_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/http/message.h"

namespace sluice::standby {

// A secret of servers that pass requests on to each other: a request carries
// the proof that its sender has the secret, and which client it is of. The
// proof is of method, target, id and client, not of body, key or time: who
// reads one on the way can send such a request at any time. Any thread.
class PeerSecret {
 public:
  // Of a request: the proof.
  static constexpr std::string_view kHeader = "x-sluice-peer";

  explicit PeerSecret(std::string_view secret)
      : secret_(secret.begin(), secret.end()) {}
  // Reads a file of one line of 16 to 512 printable characters.
  // INVALID_ARGUMENT names the file, never the secret; a file that everybody
  // may read or write is refused.
  static StatusOr<PeerSecret> Read(const std::string& path);

  // Returns the proof of a request with the header X-Forwarded-For.
  std::string Prove(const http::HttpRequest& request,
                    std::string_view forwarded_for) const;
  // Whether `request` carries its proof; then its peer is the client that it
  // was passed on for: the last one of X-Forwarded-For.
  bool Accept(http::HttpRequest& request) const;

 private:
  std::vector<char> secret_;
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_PEER_SECRET_H_
