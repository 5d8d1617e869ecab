#ifndef SLUICE_COMMON_STANDBY_UPSTREAM_H_
#define SLUICE_COMMON_STANDBY_UPSTREAM_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/client_stream.h"
#include "common/http/file_watch.h"
#include "common/http/response_parser.h"
#include "common/http/task.h"
#include "common/standby/name_lookup.h"

namespace sluice::standby {

// "10.0.0.2:8000", "gateway-1:8000" or "[::1]:8000".
struct ServerAddress {
  std::string host;
  std::string port;
  // INVALID_ARGUMENT names the text.
  static StatusOr<ServerAddress> Parse(const std::string& text);
};

// The trust in the certificates of other servers of the same kind: what the
// system's authorities or those of `ca` sign for the server's name, and this
// server's own certificate whatever its name. One thread.
class PeerTrust {
 public:
  using Context = boost::asio::ssl::context;

  // `certificate`: this server's PEM file; empty: peers speak plain HTTP. `ca`:
  // a PEM file of authorities; may be empty.
  PeerTrust(std::string certificate, std::string ca)
      : certificate_(std::move(certificate)), ca_(std::move(ca)) {}

  // Returns the context of a new connection to `host`; null: no TLS. Reads the
  // certificate again if its file has changed.
  StatusOr<std::shared_ptr<Context>> For(const std::string& host);

 private:
  const std::string certificate_;
  const std::string ca_;
  std::optional<http::FileVersion> version_;  // of the certificate in contexts_
  std::map<std::string, std::shared_ptr<Context>> contexts_;  // by host
};

// What connections to other servers need.
struct PeerConnections {
  NameLookup& names;
  PeerTrust& trust;
};

// One request to another server, over a connection of its own, and its answer.
// On the loop's thread; one call at a time. Errors are UNAVAILABLE and name
// what failed.
class Upstream {
 public:
  // `tls`: null, plain HTTP. `io` and `names` outlive it.
  Upstream(boost::asio::io_context& io, NameLookup& names,
           const ServerAddress& address,
           std::shared_ptr<PeerTrust::Context> tls);

  // `limit`: of the lookup, and of the rest.
  http::Task<Status> Connect(Duration limit);
  // `head` and `body` outlive the call; `limit` is that of each 64 KiB.
  http::Task<Status> Send(const std::string& head, const std::string& body,
                          Duration limit);
  // Reads up to the answer's body. No `limit`: as long as it takes.
  http::Task<Status> ReadHead(std::optional<Duration> limit);
  // Reads the next bytes of the body; none: its end.
  http::Task<StatusOr<std::string>> ReadBody();
  // After ReadHead.
  const http::ResponseParser& answer() const { return parser_; }

  // Ends the call that waits, with an error.
  void Close();

 private:
  http::Task<Status> ReadSome();
  Status Failed(std::string_view what, std::string_view why) const;
  Status Failed(std::string_view what,
                const boost::system::error_code& error) const {
    return Failed(what, error.message());
  }

  const ServerAddress address_;
  NameLookup& names_;
  boost::asio::steady_timer lookup_timer_;
  http::ClientStream stream_;
  http::ResponseParser parser_{/*keeps_headers=*/true};
  bool closed_ = false;
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_UPSTREAM_H_
