#ifndef SLUICE_COMMON_STANDBY_FORWARDER_H_
#define SLUICE_COMMON_STANDBY_FORWARDER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/exchange.h"
#include "common/http/message.h"
#include "common/standby/passed_events.h"
#include "common/standby/peer_secret.h"

namespace sluice::standby {

struct ForwarderOptions {
  std::vector<std::string> peers;  // HOST:PORT
  // Of Upstream's PeerTrust.
  std::string certificate;
  std::string ca;
  // How long a request waits for a server that answers it.
  Duration patience = std::chrono::seconds(30);
  // Requests that peers answer at a time, below the connections that a peer
  // allows one client; the others wait. 0: any number.
  int most_at_once = 0;
  // Whether this server answers requests itself. Any thread; must not block.
  std::function<bool()> leads;
  // Whether the peers are asked who leads. Empty: while this server does not.
  std::function<bool()> asks = nullptr;
  http::HttpHeaders question = {};  // of the question to a peer, GET /readyz
  // Returns by the headers of the answer why a peer is none; OK: it is one. On
  // the thread "forward".
  std::function<Status(const http::HttpHeaders& answer)> fits = nullptr;
  // Returns by the body of a peer's /readyz how far the peer leads, 0 if it
  // does not: of several the highest gets the requests. Must not throw.
  std::function<uint64_t(const std::string& body)> rank;
  // Called after each time that the peers were asked, or were not: the body of
  // the leader's /readyz; nothing: none leads. On the thread "forward".
  std::function<void(const std::optional<std::string>& leader)> on_round =
      nullptr;
  // Whether a request asks for nothing that was the cause of a server's end: no
  // grammar, schema or tools. On the thread "forward". Empty: all are plain.
  std::function<bool(const http::HttpRequest&)> is_plain = nullptr;
  // Answers a request here. On the exchange's loop.
  std::function<void(std::shared_ptr<http::Exchange>)> serve;
  // Of requests to the peers; none: they carry no proof.
  std::optional<PeerSecret> secret = std::nullopt;
  // The path of a peer that leads whose answer has no end: `on_feed` gets its
  // records (PeerFeed), on the thread "forward". Empty: none.
  std::string feed_path = {};
  std::function<void(const std::string& record)> on_feed = nullptr;
  // Returns the IP addresses of a peer's name. On a thread of its own, for any
  // time. Empty: the system's lookup.
  std::function<StatusOr<std::vector<std::string>>(const std::string& host)>
      look_up = nullptr;
};

// Any thread.
struct ForwarderStats {
  std::atomic<int> waiting{0};         // for a server, or its answer
  std::atomic<uint64_t> forwarded{0};  // answers of other servers passed back
  // Of them, cut off by their servers: the rest came from another one, or not.
  std::atomic<uint64_t> resumed{0}, broken{0};
  // Requests that were not tried again: RepeatOrder.
  std::atomic<uint64_t> lost{0};
};

// Passes requests on to the peer that leads, and its answers back, piece by
// piece as the client reads them. A request whose server is gone before its
// answer's head waits for the next one, or for this server to lead. So does a
// stream of events that breaks off behind an event with an id: the next server
// gets the id as Last-Event-ID. Other streams end with an error. A request that
// servers were lost with goes on in its turn, and may end with an error of the
// code "lost_gateways" (RepeatOrder): it may be the cause. The thread "forward"
// has all connections.
class Forwarder {
 public:
  // INVALID_ARGUMENT for an address or a file that cannot be used.
  static StatusOr<std::unique_ptr<Forwarder>> Start(ForwarderOptions options);
  ~Forwarder();  // Stop()
  Forwarder(const Forwarder&) = delete;
  Forwarder& operator=(const Forwarder&) = delete;

  // Takes a request over. `passed`: of a stream of events, those that the
  // client has; the last one has an id. On the exchange's loop.
  void Take(std::shared_ptr<http::Exchange> exchange,
            std::optional<PassedEvents> passed = std::nullopt);
  // The peer that leads, as in the options; nothing: none is known. Any thread.
  std::optional<std::string> leader() const;
  // What is wrong with the peers, as they were asked last: "HOST:PORT: why;
  // ..". Any thread.
  std::string troubles() const;
  const ForwarderStats& stats() const;

  // Ends all requests with an error. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit Forwarder(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::standby

#endif  // SLUICE_COMMON_STANDBY_FORWARDER_H_
